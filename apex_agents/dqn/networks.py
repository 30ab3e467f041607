"""Dueling networks (Wang et al. 2016) on any torso."""

from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import TORSOS, ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.own_torso import TorsoFn, find_own_torso
from apex_agents.networks.torsos import AtariTorso, ConvTorso, VectorTorso, mixed_precision


def make_network(
    config: ApexDQNConfig,
    spec: EnvironmentSpec,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> snt.Sequential:
    """Build the action-value network of a config; its variables exist.

    Args:
      config: torso and sizes of the network.
      spec: specification of one environment, with A actions.
      dtype: dtype of the variables of all layers but the output layers and a torso of the user's.
      torso_fn: maker of the torso in place of the config's.

    Returns:
      A module from observations `[B, ...]` to action values `[B, A]` float32, for calls in mixed
      precision, too. Its variables are called `torso/conv_1/w`, `head/hidden/w` and so on.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    # Later calls may be in mixed precision only if the first one says that it is not.
    with snt.mixed_precision.scope(tf.float32):
        observations, layers = zero_observations(spec), []
        if config.normalize_observations:
            layers.append(RunningNormalization(spec.observations.shape, name="normalization"))
            observations = layers[0](observations)
        own_torso = find_own_torso(config.torso, "agent.torso", TORSOS, torso_fn)
        if own_torso is not None:
            torso = own_torso.make(spec, config, observations)
        elif config.torso == "atari":
            torso = AtariTorso(dtype, name="torso")
        elif config.torso == "conv":
            torso = ConvTorso(config, spec, dtype, name="torso")
        else:
            torso = VectorTorso(config.mlp_hidden_sizes, spec, dtype, name="torso")
        head = DuelingHead(config.stream_hidden_size, spec.actions.num_values, name="head")
        head(torso(observations))
    return snt.Sequential([*layers, torso, head])


class DuelingHead(snt.Module):
    """Value and advantage streams, each with one hidden layer of `hidden_size` units.

    q(s, a) = v(s) + adv(s, a) - mean_a' adv(s, a')

    Source: Wang et al. 2016, equation 9.
    """

    def __init__(self, hidden_size: int, num_actions: int, name: str | None = None):
        super().__init__(name=name)
        # Side by side: one product for both.
        self._hidden_layers = snt.Linear(2 * hidden_size, name="hidden")
        self._value = snt.Linear(1, name="value")
        self._advantage = snt.Linear(num_actions, name="advantage")

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Map features `[B, F]` to action values `[B, A]` float32."""
        # Output layers compute in float32: 8 bits cannot tell the values of two actions apart.
        value_units, advantage_units = tf.split(tf.cast(self._hidden(features), tf.float32), 2, 1)
        advantage = self._advantage(advantage_units)
        centred = advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True)
        return self._value(value_units) + centred

    @mixed_precision
    def _hidden(self, features: tf.Tensor) -> tf.Tensor:
        # Both streams send gradients into the features: scaled down so that their sum has the size
        # of one (Wang et al. 2016, section 4.2).
        return tf.nn.relu(self._hidden_layers(scale_gradient(features, 2**-0.5)))


def scale_gradient(tensor: tf.Tensor, scale: float) -> tf.Tensor:
    """Return `tensor` itself, with the gradients that flow back through it times `scale`."""

    @tf.custom_gradient
    def identity(tensor: tf.Tensor) -> Any:
        return tf.identity(tensor), lambda gradient: gradient * scale

    return identity(tensor)
