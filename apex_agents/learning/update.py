"""The seam between an algorithm and the learner: one update on one batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from apex_agents.replay.transitions import Transition


class UpdateOutput(NamedTuple):
    """What an update leaves behind.

    Attributes:
      priorities: `[B]`, |td error|, the transitions' new priorities.
      metrics: scalars to log.
    """

    priorities: tf.Tensor
    metrics: Mapping[str, tf.Tensor]


class Update(Protocol):
    """One step of learning; callable inside a `tf.function`, also without AutoGraph.

    Attributes:
      variables: what actors need, by the names under which it is published.
      state: everything a checkpoint has to hold.
    """

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]: ...

    @property
    def state(self) -> Mapping[str, Any]: ...

    def __call__(self, transitions: Transition, weights: tf.Tensor) -> UpdateOutput:
        """Update the networks; `weights` are importance weights, `[B]`."""
        ...


def update_in_turn(
    update: Callable[[Any], UpdateOutput], sample: Any, num_updates: int
) -> UpdateOutput:
    """Learn from the batches of a sample one after the other, in one call of a compiled function.

    Small networks are updated in less time than it takes to call a function.

    Args:
      update: one update on one batch, a nest of tensors `[B, ...]`.
      sample: K batches in a row, a nest of tensors `[K * B, ...]`.
      num_updates: K.

    Returns:
      Priorities of all batches, `[K * B]`, and the last one's metrics.
    """
    if num_updates == 1:
        return update(sample)
    batches = tf.nest.map_structure(
        lambda rows: tf.reshape(rows, [num_updates, -1, *rows.shape[1:]]), sample
    )
    names = dict[str, None]()

    def update_on_next(
        k: tf.Tensor, priorities: tf.TensorArray, metrics: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.TensorArray, tf.TensorArray]:
        output = update(tf.nest.map_structure(lambda rows: rows[k], batches))
        names.update(dict.fromkeys(output.metrics))
        scalars = tf.stack([tf.cast(output.metrics[name], tf.float32) for name in names])
        return k + 1, priorities.write(k, output.priorities), metrics.write(k, scalars)

    empty = [tf.TensorArray(tf.float32, num_updates) for _ in range(2)]
    _, priorities, metrics = tf.while_loop(
        lambda k, *_: k < num_updates, update_on_next, (0, *empty), parallel_iterations=1
    )
    last = tf.unstack(metrics.read(num_updates - 1), num=len(names))
    return UpdateOutput(priorities.concat(), dict(zip(names, last, strict=True)))


def copy_variables(source: Sequence[tf.Variable], target: Sequence[tf.Variable]) -> None:
    """Give the variables of a target network the values of the online network's."""
    for online, copy in zip(source, target, strict=True):
        copy.assign(online)
