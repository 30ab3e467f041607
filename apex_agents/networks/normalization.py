"""Running normalization of vectors of observations."""

import contextvars
from collections.abc import Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

_EPSILON = 1e-8
_MAX_VALUE = 10.0

# Where statistics are updated: those that were, in this thread.
_updated = contextvars.ContextVar["list[RunningNormalization] | None"]("_updated", default=None)


class RunningNormalization(snt.Module):
    """Subtracts the mean and divides by the standard deviation of all that was observed.

      y = clip((x - mean) / sqrt(variance + 1e-8), -10, 10)

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

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to float32 of the same shape, in [-10, 10]."""
        if (updated := _updated.get()) is not None:
            self.update(observations)
            updated.append(self)
        centred = tf.cast(observations, tf.float32) - self.mean
        normalized = centred * tf.math.rsqrt(self.variance + _EPSILON)
        return tf.clip_by_value(normalized, -_MAX_VALUE, _MAX_VALUE)

    def update(self, observations: tf.Tensor) -> None:
        """Add a batch `[B, ...]` to the statistics.

        share = B / (count + B), delta = batch_mean - mean
        mean <- mean + share * delta
        variance <- (1 - share) * variance + share * batch_variance + share * (1 - share) * delta^2

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
    """Let every `RunningNormalization` in a network observe what the network gives it of a batch.

    Raises:
      ValueError: it gives one of them nothing.
    """
    modules = [m for m in network.submodules if isinstance(m, RunningNormalization)]
    if not modules:
        return
    updated: list[RunningNormalization] = []
    token = _updated.set(updated)
    try:
        network(*batch)  # As a graph, without what no statistics depend on.
    finally:
        _updated.reset(token)
    if unused := [module.name for module in modules if module not in updated]:
        raise ValueError(
            f"the RunningNormalization {unused} learns nothing: its network does not call it, or "
            "does so in a tf.function of its own."
        )
