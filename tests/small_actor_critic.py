"""A small actor-critic, and rollouts of random steps."""

from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.actor_critic.config import A2CConfig, A3CConfig, ActorCriticConfig
from apex_agents.actor_critic.learning import Rollout
from apex_agents.actor_critic.networks import ActorCriticNetwork
from apex_agents.environments import EnvironmentSpec

T, E, NUM_ACTIONS = 5, 3, 2
SPEC = EnvironmentSpec(
    specs.Array((4,), np.float32),
    specs.DiscreteArray(NUM_ACTIONS),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


def make_config(is_synchronous: bool = True, **settings: Any) -> ActorCriticConfig:
    """Make the settings of a small agent."""
    config_class = A2CConfig if is_synchronous else A3CConfig
    settings = {"torso": "mlp", "mlp_hidden_sizes": (8,), "hidden_size": 0, "n_step": T, **settings}
    return config_class(frame_stack=0, **settings)


def make_network() -> ActorCriticNetwork:
    """Make the network of one seed."""
    tf.random.set_seed(0)
    network = ActorCriticNetwork(snt.nets.MLP([8], activate_final=True), 4, SPEC)
    network(tf.zeros([1, 4]))
    return network


def make_rollout(seed: int) -> Rollout:
    """Make random steps; the first environment ends at S_2, and begins another episode with S_3."""
    random = np.random.default_rng(seed)
    is_step = np.ones([T, E], bool)
    is_step[2, 0] = False
    return Rollout(
        observation=random.normal(size=[T + 1, E, 4]).astype(np.float32),
        action=random.integers(NUM_ACTIONS, size=[T, E]).astype(np.int32),
        reward=random.normal(size=[T, E]).astype(np.float32),
        discount=np.full([T, E], 0.9, np.float32),
        is_step=is_step,
    )


def of_envs(rollout: Rollout, envs: slice) -> Rollout:
    """Return some environments of a rollout as tensors."""
    return Rollout(*[tf.constant(field[:, envs]) for field in rollout])
