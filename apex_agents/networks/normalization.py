"""Running normalization of vectors of observations."""

from collections.abc import Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

_EPSILON = 1e-8
# Deviations below this share of the mean may be rounding of float32 and of simulations.
_RELATIVE_DEVIATION = 1e-5
_MAX_VALUE = 10.0


class RunningNormalization(snt.Module):
    """Subtracts the mean and divides by the standard deviation of all observations so far.

      y = clip((x - mean) / sqrt(variance + 1e-8 + (1e-5 mean)^2), -10, 10)

    The last term keeps an element that is constant but for rounding close to 0.

    The statistics are variables that are not trained, so that they are published, saved and copied
    to the target network together with the parameters that go with them. Before the first update
    they are a mean of 0 and a variance of 1.

    Attributes:
      mean: mean of each element so far.
      variance: variance of each element so far.
      count: int64 scalar, number of observations so far.
    """

    def __init__(self, shape: Sequence[int], name: str | None = None):
        super().__init__(name=name)
        self.mean = tf.Variable(tf.zeros(shape), trainable=False, name="mean")
        self.variance = tf.Variable(tf.ones(shape), trainable=False, name="variance")
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="count")
        self.learns_from_next_input = False

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to float32 of the same shape, in [-10, 10]."""
        if self.learns_from_next_input:
            self.learns_from_next_input = False
            self.update(observations)
        centred = tf.cast(observations, tf.float32) - self.mean
        rounding = tf.square(_RELATIVE_DEVIATION * self.mean)
        normalized = centred * tf.math.rsqrt(self.variance + _EPSILON + rounding)
        return tf.clip_by_value(normalized, -_MAX_VALUE, _MAX_VALUE)

    def update(self, observations: tf.Tensor) -> None:
        """Add a batch `[B, ...]` to the statistics.

          share = B / (count + B), delta = batch_mean - mean
          mean <- mean + share * delta
          variance <- (1 - share) * variance + share * batch_variance
                      + share * (1 - share) * delta^2

        Source: Chan, Golub & LeVeque 1979.
        """
        observations = tf.cast(observations, tf.float32)
        batch_mean, batch_variance = tf.nn.moments(observations, axes=[0])
        batch_size = tf.shape(observations, tf.int64)[0]
        self.count.assign_add(batch_size)
        share = tf.cast(batch_size / self.count, tf.float32)
        delta = batch_mean - self.mean
        spread = batch_variance + (1 - share) * tf.square(delta)
        variance = (1 - share) * self.variance + share * spread
        is_finite = tf.math.is_finite(variance)  # Squares of observations may be too large.
        self.mean.assign_add(tf.where(is_finite, share * delta, 0.0))
        self.variance.assign(tf.where(is_finite, variance, self.variance))


def update_statistics(network: Any, *batch: tf.Tensor) -> None:
    """Update every `RunningNormalization` of a network with its input when called on a batch.

    In a graph, what no statistics depend on is left out: there is no second pass of the network.

    Raises:
      ValueError: the network does not call one of them.
    """
    modules = [m for m in network.submodules if isinstance(m, RunningNormalization)]
    for module in modules:
        module.learns_from_next_input = True
    try:
        if modules:
            network(*batch)
        if unused := [module.name for module in modules if module.learns_from_next_input]:
            raise ValueError(f"RunningNormalization {unused}: the network does not call it.")
    finally:
        for module in modules:
            module.learns_from_next_input = False
