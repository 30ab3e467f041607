"""Policy and critic of Ape-X DPG (Horgan et al. 2018, appendix D)."""

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from apex_agents.dpg.config import TORSOS, ApexDPGConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.own_torso import TorsoFn, find_own_torso
from apex_agents.networks.torsos import VectorTorso

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

    def __init__(
        self, torso: snt.Module, hidden_size: int, action_size: int, name: str | None = None
    ):
        """Put a hidden layer and the output layer on a torso."""
        super().__init__(name=name)
        self._first, self._second = torso, snt.Linear(hidden_size, name="hidden")
        self._output = _make_output_layer(action_size)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to actions `[B, D]`."""
        features = tf.nn.relu(self._second(self._first(observation)))
        return tf.tanh(self._output(features))


class CriticNetwork(snt.Module):
    """q(s, a); the action enters behind the torso (Lillicrap et al. 2016, section 7)."""

    def __init__(self, torso: snt.Module, hidden_size: int, name: str | None = None):
        """Put a hidden layer, which reads the action, too, and the output layer on a torso."""
        super().__init__(name=name)
        self._first, self._second = torso, snt.Linear(hidden_size, name="hidden")
        self._output = _make_output_layer(1)

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` and actions `[B, D]` to action values `[B]`."""
        features, action = self._first(observation), tf.cast(action, tf.float32)
        features = tf.nn.relu(self._second(tf.concat([features, action], axis=-1)))
        return tf.squeeze(self._output(features), axis=-1)


def make_networks(
    config: ApexDPGConfig, spec: EnvironmentSpec, torso_fn: TorsoFn | None = None
) -> DPGNetworks:
    """Build the networks of a config for one environment.

    Args:
      config: torsos and sizes of the networks.
      spec: specification of one environment.
      torso_fn: maker of both torsos in place of the config's.

    Returns:
      Networks whose variables exist; their names begin with `policy/` and `critic/`.

    Raises:
      ValueError: a torso does not fit the environment.
    """
    (action_size,) = spec.actions.shape
    observation = zero_observations(spec)
    critic_torso = _make_torso(config, "critic", spec, torso_fn)
    policy_torso = _make_torso(config, "policy", spec, torso_fn)
    policy = PolicyNetwork(policy_torso, config.policy_hidden_sizes[1], action_size, name="policy")
    critic = CriticNetwork(critic_torso, config.critic_hidden_sizes[1], name="critic")
    critic(observation, policy(observation))
    return DPGNetworks(policy, critic)


def _make_torso(
    config: ApexDPGConfig, network: str, spec: EnvironmentSpec, torso_fn: TorsoFn | None
) -> snt.Module:
    """Make the torso of 'policy' or 'critic', behind the normalization if there is one."""
    field, observations = f"{network}_torso", zero_observations(spec)
    name, (first_size, _) = getattr(config, field), getattr(config, f"{network}_hidden_sizes")
    own_torso = find_own_torso(name, f"agent.{field}", TORSOS, torso_fn)
    with tf.name_scope(network):
        layers = []
        if config.normalize_observations:
            layers.append(RunningNormalization(spec.observations.shape, name="normalization"))
            observations = layers[0](observations)
        if own_torso is None:
            torso = VectorTorso([first_size], spec, activation=tf.tanh, name="torso")
        else:
            torso = own_torso.make(spec, config, observations)
        return snt.Sequential([*layers, torso])


def _make_output_layer(size: int) -> snt.Linear:
    return snt.Linear(size, w_init=_OUTPUT_INITIALIZER, name="output")
