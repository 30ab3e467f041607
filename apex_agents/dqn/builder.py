"""The parts of Ape-X DQN that are its own."""

from collections.abc import Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf
from acme import specs

from apex_agents.acting.exploration import epsilon_ladder
from apex_agents.acting.policy import Policy
from apex_agents.builder import Builder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.dqn.networks import make_network
from apex_agents.dqn.policy import EpsilonGreedyPolicy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.precision import compute_dtype


class ApexDQNBuilder(Builder):
    """Builder of Ape-X DQN, for discrete actions; its config is an `ApexDQNConfig`."""

    config_class = ApexDQNConfig

    def check_environment(self, spec: EnvironmentSpec) -> None:
        if not isinstance(spec.actions, specs.DiscreteArray):
            raise ValueError(
                f"Ape-X DQN needs discrete actions; the environment has {spec.actions}."
            )
        shape, dtype = spec.observations.shape, spec.observations.dtype
        if self.config.network == "atari" and (shape[1:] != (84, 84) or dtype != np.uint8):
            raise ValueError(
                "agent.network is 'atari', for uint8 frames [stack, 84, 84], but observations are "
                f"{dtype} {shape}; use 'mlp'."
            )
        stack = self.config.frame_stack
        is_image = dtype == np.uint8 and len(shape) > 1
        if (stack or is_image) and (len(shape) < 2 or shape[0] != stack):
            raise ValueError(
                f"agent.frame_stack is {stack}, but observations are {shape}; it has to be their "
                "first dimension, or 0 if they are no images."
            )

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        """Build the exploring policy of one actor: each environment has its own epsilon."""
        epsilons = epsilon_ladder(self.config.exploration, num_envs)[list(env_indices)]
        network = self._make_network(spec, seed, compute_dtype(self.config.bfloat16))
        return EpsilonGreedyPolicy(network, epsilons, seed)

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        epsilons = np.full(num_envs, self.config.exploration.evaluation_epsilon)
        return EpsilonGreedyPolicy(self._make_network(spec, seed), epsilons, seed)

    def make_update(self, spec: EnvironmentSpec, seed: int) -> DQNUpdate:
        network, target_network = [self._make_network(spec, seed) for _ in range(2)]
        return DQNUpdate(network, target_network, self.config)

    def _make_network(
        self, spec: EnvironmentSpec, seed: int, dtype: tf.DType = tf.float32
    ) -> snt.Module:
        tf.random.set_seed(seed)
        network = make_network(self.config, spec.actions.num_values, dtype)
        with snt.mixed_precision.scope(tf.float32):  # See `make_network`.
            network(tf.zeros([1, *spec.observations.shape], spec.observations.dtype))
        return network
