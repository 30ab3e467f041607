"""Dueling networks (Wang et al. 2016) on any torso."""

import math
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.distributions import ReturnDistribution, expected_value, quantiles
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.torso_choice import TorsoFn, make_torso
from apex_agents.precision import mixed_precision


def make_network(
    config: ApexDQNConfig,
    spec: EnvironmentSpec,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> "ActionValueNetwork":
    """Build the action-value network of a config; its variables exist.

    Args:
      config: torso and sizes of the network.
      spec: specification of one environment, with A actions.
      dtype: dtype of the variables of all layers but the output layers and a user-defined torso.
      torso_fn: maker of the torso in place of the config's.

    Returns:
      A module from observations `[B, ...]` to action values `[B, A]` float32, for calls in
      `computing_in`, too. Its variables are called `torso/conv_1/w`, `head/hidden/w` and so on.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    observations, layers = zero_observations(spec), []
    if config.normalize_observations:
        layers.append(RunningNormalization(spec.observations.shape, name="normalization"))
        observations = layers[0](observations)
    torso = make_torso(config, spec, observations, dtype, torso_fn)
    distribution = make_distribution(config)
    num_actions = spec.actions.num_values
    head = DuelingHead(config.stream_hidden_size, num_actions, distribution.shape, name="head")
    head(torso(observations))
    return ActionValueNetwork(snt.Sequential([*layers, torso, head]), distribution)


def make_distribution(config: ApexDQNConfig) -> ReturnDistribution:
    """Make the output distribution of a config's head."""
    return quantiles(config.num_quantiles) if config.head == "quantile" else expected_value()


class ActionValueNetwork(snt.Module):
    """Action values as the means of distributions of the return.

    Attributes:
      return_distribution: module from observations `[B, ...]` to distributions `[B, A, *shape]`.
    """

    def __init__(self, layers: snt.Module, distribution: ReturnDistribution):
        """Wrap layers that give out `distribution` for each action."""
        super().__init__()
        self.return_distribution = layers
        self._mean = distribution.mean

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to action values `[B, A]`."""
        return self._mean(self.return_distribution(observation))


class DuelingHead(snt.Module):
    """Value and advantage streams, each with one hidden layer of `hidden_size` units.

    q(s, a) = v(s) + adv(s, a) - mean_a' adv(s, a')

    Source: Wang et al. 2016, equation 9. If q has a shape of its own, as N quantiles have, the
    equation holds for each element.
    """

    def __init__(
        self,
        hidden_size: int,
        num_actions: int,
        value_shape: tuple[int, ...] = (),
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._num_actions, self._value_shape = num_actions, value_shape
        value_size = math.prod(value_shape)
        # Side by side: one product for both.
        self._hidden_layers = snt.Linear(2 * hidden_size, name="hidden")
        self._value = snt.Linear(value_size, name="value")
        self._advantage = snt.Linear(num_actions * value_size, name="advantage")

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Map features `[B, F]` to action values `[B, A, *value_shape]` float32."""
        # Output layers compute in float32: 8 bits cannot tell the values of two actions apart.
        value_units, advantage_units = tf.split(tf.cast(self._hidden(features), tf.float32), 2, 1)
        value = tf.reshape(self._value(value_units), [-1, 1, *self._value_shape])
        advantage = self._advantage(advantage_units)
        advantage = tf.reshape(advantage, [-1, self._num_actions, *self._value_shape])
        return value + advantage - tf.reduce_mean(advantage, axis=1, keepdims=True)

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
