"""The dueling head of action-value networks (Wang et al. 2016)."""

import math
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.precision import mixed_precision


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
