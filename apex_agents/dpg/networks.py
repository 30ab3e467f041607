"""Policy and critic of Ape-X DPG (Horgan et al. 2018, appendix D)."""

from collections.abc import Sequence
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.environments import EnvironmentSpec

# Appendix D names no activation after the second hidden layers and no initialisation: as in DDPG
# (Lillicrap et al. 2016, section 7), ReLU, and output layers that begin close to 0.
_OUTPUT_INITIALIZER = snt.initializers.RandomUniform(-3e-3, 3e-3)


class DPGNetworks(NamedTuple):
    """Policy and critic of an agent.

    Attributes:
      policy: pi, from observations `[B, ...]` to actions `[B, D]` in [-1, 1].
      critic: q, from observations `[B, ...]` and actions `[B, D]` to action values `[B]`.
    """

    policy: snt.Module
    critic: snt.Module


class PolicyNetwork(snt.Module):
    """a = pi(s), each element in [-1, 1]."""

    def __init__(self, hidden_sizes: Sequence[int], action_size: int, name: str | None = None):
        super().__init__(name=name)
        self._first, self._second = [snt.Linear(size) for size in hidden_sizes]
        self._output = _make_output_layer(action_size)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to actions `[B, D]`."""
        features = tf.tanh(self._first(_flatten(observation)))
        features = tf.nn.relu(self._second(features))
        return tf.tanh(self._output(features))


class CriticNetwork(snt.Module):
    """q(s, a); the action enters the second layer (Lillicrap et al. 2016, section 7)."""

    def __init__(self, hidden_sizes: Sequence[int], name: str | None = None):
        super().__init__(name=name)
        self._first, self._second = [snt.Linear(size) for size in hidden_sizes]
        self._output = _make_output_layer(1)

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` and actions `[B, D]` to action values `[B]`."""
        features = tf.tanh(self._first(_flatten(observation)))
        action = tf.cast(action, tf.float32)
        features = tf.nn.relu(self._second(tf.concat([features, action], axis=-1)))
        return tf.squeeze(self._output(features), axis=-1)


def make_networks(config: ApexDPGConfig, spec: EnvironmentSpec) -> DPGNetworks:
    """Build the networks of a config for one environment; their variables exist."""
    (action_size,) = spec.actions.shape
    policy = PolicyNetwork(config.policy_hidden_sizes, action_size)
    critic = CriticNetwork(config.critic_hidden_sizes)
    observation = tf.zeros([1, *spec.observations.shape], spec.observations.dtype)
    critic(observation, policy(observation))
    return DPGNetworks(policy, critic)


def _make_output_layer(size: int) -> snt.Linear:
    return snt.Linear(size, w_init=_OUTPUT_INITIALIZER)


def _flatten(observation: tf.Tensor) -> tf.Tensor:
    return snt.flatten(tf.cast(observation, tf.float32))
