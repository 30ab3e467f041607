"""Tiny experiments in one process: configs, runs, and the networks that they learned."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import tensorflow as tf

from apex_agents.builder import Builder
from apex_agents.config import RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import Episode, VectorEnvironment
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.experiment import Experiment
from apex_agents.learning.learner import ApexLearner
from apex_agents.local import run_local
from apex_agents.replay.config import ReplayConfig

NUM_ENVS = 8


def make_dqn_config(**changes: Any) -> ApexDQNConfig:
    """Make a config that learns values of vectors to a few percent within 500 learner steps."""
    settings = {
        "torso": "mlp",
        "mlp_hidden_sizes": (32,),
        "stream_hidden_size": 32,
        "frame_stack": 0,
        "discount": 0.5,
        "batch_size": 16,
        "learning_rate": 0.005,
        # Large: the steps get smaller with the gradients, and the values come to rest.
        "rmsprop_epsilon": 0.01,
        "target_update_period": 20,
        "variable_update_period": 5,
        "publish_period": 5,
        "exploration": ExplorationConfig(epsilon=0.5, alpha=6.0),
        "replay": ReplayConfig(
            max_size=1000,
            min_size=80,
            samples_per_insert=8.0,
            insert_batch=5,
            max_in_flight=10,
            prefetch_batches=2,
        ),
    }
    return ApexDQNConfig(**{**settings, **changes})


def make_dpg_config(**changes: Any) -> ApexDPGConfig:
    """Make a config that learns values of vectors to about a tenth within 800 learner steps."""
    settings = {
        "policy_hidden_sizes": (32, 32),
        "critic_hidden_sizes": (32, 32),
        "n_step": 1,
        "discount": 0.5,
        "batch_size": 64,
        "learning_rate": 0.003,
        "target_update_period": 20,
        "variable_update_period": 5,
        "publish_period": 5,
        "replay": ReplayConfig(
            max_size=5000,
            min_size=200,
            eviction_policy="prioritized",
            samples_per_insert=16.0,
            prefetch_batches=2,
        ),
    }
    return ApexDPGConfig(**{**settings, **changes})


def learn(
    builder: Builder,
    make_environment: Callable[[], dm_env.Environment],
    max_learner_steps: int | None,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    max_seconds: float | None = None,
) -> ApexLearner:
    """Let two actors and a learner take turns in this process; return the learner."""

    def make_vector_environment(num_envs: int, seed: int, evaluation: bool) -> VectorEnvironment:
        return SyncVectorEnvironment([make_environment() for _ in range(num_envs)])

    limits = RunConfig(
        num_actors=2,
        num_envs_per_actor=NUM_ENVS // 2,
        max_learner_steps=max_learner_steps,
        max_seconds=max_seconds,
    )
    experiment = Experiment(builder, make_vector_environment, limits, workdir="")
    return run_local(experiment, on_episode)


def assign_learned(variables: Mapping[str, Sequence[tf.Variable]], learner: ApexLearner) -> None:
    """Give variables the values that the learner has under the same names."""
    for name, group in variables.items():
        (arrays,) = learner.get_variables([name])
        for variable, array in zip(group, arrays, strict=True):
            variable.assign(array)
