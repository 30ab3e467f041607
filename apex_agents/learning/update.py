"""The seam between an algorithm and the learner: gradients from a batch, and a step along them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf


class Computed(NamedTuple):
    """Results of a batch.

    Attributes:
      gradients: gradients of the loss, to be descended, in the structure of `Update.trained`; None
        for a variable on which the loss does not depend. `()` once they have been descended.
      priorities: `[B]`, `|td error|`, the transitions' new priorities; None without a replay.
      metrics: scalars to log, by name: numbers, whose means over several updates are logged, or
        integers that count from the start, whose newest values are.
    """

    gradients: Any
    priorities: tf.Tensor | None
    metrics: Mapping[str, tf.Tensor]


class Update(Protocol):
    """One learner step in two halves, which may be done by different processes.

    Both are callable inside a `tf.function`, also without AutoGraph.

    Attributes:
      trained: variables whose gradients are computed, a nest.
      variables: variables that actors need, by the names under which they are published.
      targets: variables of the target networks; None without target networks.
      state: everything that a checkpoint has to hold, by name; `num_updates` is part of it.
      num_updates: int64 scalar, steps applied so far.
    """

    trained: Any
    num_updates: tf.Variable

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]: ...

    @property
    def targets(self) -> "TargetCopies | None": ...

    @property
    def state(self) -> Mapping[str, Any]: ...

    def compute(self, batch: Any, weights: tf.Tensor) -> Computed:
        """Compute gradients on one batch, and add it to the statistics of observations.

        Args:
          batch: a `Transition` with fields `[B, ...]`, or the data of another algorithm.
          weights: `[B]`, importance weights.

        Raises:
          ValueError: a part of the batch has the wrong shape.
        """

    def apply(self, gradients: Any) -> Mapping[str, tf.Tensor]:
        """Take a step along gradients, which are clipped here, and count it; return metrics."""


def update_on_batch(update: Update, batch: Any, weights: tf.Tensor) -> Computed:
    """Compute gradients on one batch and apply them at once."""
    gradients, priorities, metrics = update.compute(batch, weights)
    return Computed((), priorities, {**metrics, **update.apply(gradients)})


class TargetCopies:
    """Variables of target networks, moved to those of the online networks every so many updates.

      target <- target + rate * (online - target)

    A rate of 1 copies them; a smaller one, tau, makes soft (Polyak) updates. Variables that are not
    trained, such as statistics, are always copied.

    Attributes:
      variables: variables of the target networks.
      num_updates: int64 scalar, updates counted so far.
    """

    def __init__(
        self,
        online: Sequence[tf.Variable],
        target: Sequence[tf.Variable],
        update_period: int,
        update_rate: float = 1.0,
    ):
        """Make the target variables equal to the online ones, which are in the same order."""
        self._pairs = list(zip(online, target, strict=True))
        self.variables = [pair[1] for pair in self._pairs]
        self._update_period = update_period
        self._update_rate = update_rate
        self.num_updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="num_updates")
        for online_variable, target_variable in self._pairs:
            target_variable.assign(online_variable)

    def count_update(self) -> None:
        """Count an update of the online networks; move the others every `update_period` updates."""
        self.num_updates.assign_add(1)
        is_due = self.num_updates % self._update_period == 0
        tf.cond(is_due, self._move, lambda: None)

    def last_move(self, num_updates: int) -> int:
        """Return the number of updates after which the target variables had last moved."""
        return num_updates - num_updates % self._update_period

    def _move(self) -> None:
        for online, target in self._pairs:
            if self._update_rate == 1 or not online.trainable:
                target.assign(online)
            else:
                target.assign_add(self._update_rate * (online - target))


def update_in_turn(update: Callable[[Any], Computed], sample: Any, num_updates: int) -> Computed:
    """Learn from the batches of a sample one after the other, within one compiled function.

    Updates of small networks take less time than calling a function.

    Args:
      update: one update on one batch, a nest of tensors `[B, ...]`.
      sample: K batches in a row, a nest of tensors `[K * B, ...]`.
      num_updates: K.

    Returns:
      Priorities of all batches, `[K * B]`, and the means of metrics, or the last count.
    """
    if num_updates == 1:
        return update(sample)
    batches = tf.nest.map_structure(
        lambda rows: tf.reshape(rows, [num_updates, -1, *rows.shape[1:]]), sample
    )
    first = tf.nest.map_structure(lambda rows: rows[0], batches)
    learn = tf.function(update, autograph=False).get_concrete_function(first)
    signature = tf.nest.map_structure(tf.TensorSpec.from_tensor, learn.structured_outputs)
    outputs = tf.map_fn(learn, batches, fn_output_signature=signature, parallel_iterations=1)
    metrics = {
        name: values[-1] if values.dtype.is_integer else tf.reduce_mean(tf.cast(values, tf.float32))
        for name, values in outputs.metrics.items()
    }
    return Computed((), tf.reshape(outputs.priorities, [-1]), metrics)
