"""Dueling networks (Wang et al. 2016), for frames and for vectors."""

from collections.abc import Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.learning.pixel_convolution import PixelConv2D

# Within `snt.mixed_precision.scope(tf.bfloat16)` the decorated methods compute in bfloat16, from
# variables in float32. Output layers do not: 8 bits cannot tell the values of two actions apart.
_mixed_precision = snt.mixed_precision.modes([tf.float32, tf.bfloat16])


def make_network(
    config: ApexDQNConfig, num_actions: int, dtype: tf.DType = tf.float32
) -> snt.Sequential:
    """Build the action-value network of a config.

    Args:
      config: kind and sizes of the network.
      num_actions: A.
      dtype: dtype of the variables of all layers but the output layers.

    Returns:
      A module from observations `[B, ...]` to action values `[B, A]` float32. Its first call makes
      the variables; later calls may be in mixed precision only if the first one was within
      `snt.mixed_precision.scope(tf.float32)`.
    """
    is_atari = config.network == "atari"
    torso = AtariTorso(dtype) if is_atari else VectorTorso(config.mlp_hidden_sizes, dtype)
    return snt.Sequential([torso, DuelingHead(config.stream_hidden_size, num_actions)])


class AtariTorso(snt.Module):
    """Three convolutions over stacked frames (Mnih et al. 2015), with variables of a dtype."""

    def __init__(self, dtype: tf.DType = tf.float32, name: str | None = None):
        super().__init__(name=name)
        self._convolutions = [
            PixelConv2D(32, 8, 4, dtype),
            snt.Conv2D(64, 4, 2, padding="VALID"),
            snt.Conv2D(64, 3, 1, padding="VALID"),
        ]

    @_mixed_precision
    def __call__(self, frames: tf.Tensor) -> tf.Tensor:
        """Map frames `[B, stack, 84, 84]` uint8 to features `[B, 3136]`."""
        features = frames
        for convolution in self._convolutions:
            features = tf.nn.relu(convolution(features))
        return snt.flatten(features)


class VectorTorso(snt.Module):
    """Fully connected layers over flat observations, each with a ReLU and variables of a dtype."""

    def __init__(
        self, hidden_sizes: Sequence[int], dtype: tf.DType = tf.float32, name: str | None = None
    ):
        super().__init__(name=name)
        self._dtype = dtype
        self._mlp = snt.nets.MLP(hidden_sizes, activate_final=True)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to features `[B, F]`."""
        return self._multiply(snt.flatten(tf.cast(observation, self._dtype)))

    @_mixed_precision
    def _multiply(self, features: tf.Tensor) -> tf.Tensor:
        return self._mlp(features)


class DuelingHead(snt.Module):
    """Value and advantage streams, each with one hidden layer of `hidden_size` units.

    q(s, a) = v(s) + adv(s, a) - mean_a' adv(s, a')

    Source: Wang et al. 2016, equation 9.
    """

    def __init__(self, hidden_size: int, num_actions: int, name: str | None = None):
        super().__init__(name=name)
        self._hidden_layers = snt.Linear(2 * hidden_size)  # Side by side: one product for both.
        self._value = snt.Linear(1)
        self._advantage = snt.Linear(num_actions)

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Map features `[B, F]` to action values `[B, A]` float32."""
        value_units, advantage_units = tf.split(tf.cast(self._hidden(features), tf.float32), 2, 1)
        advantage = self._advantage(advantage_units)
        centred = advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True)
        return self._value(value_units) + centred

    @_mixed_precision
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
