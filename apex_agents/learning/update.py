"""The seam between an algorithm and the learner: one update on one batch."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import sonnet as snt
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
    """One step of learning; callable inside a `tf.function`.

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


class GuardedOptimizer:
    """Optimisers that take a step together, or none of them where a gradient is not finite.

    Attributes:
      num_skipped: int64 variable, steps not taken since it was made; no part of a checkpoint.
    """

    def __init__(self, *parts: tuple[snt.Optimizer, Sequence[tf.Variable]]):
        """Take optimisers, each with the variables that it moves, and make their slots."""
        self._parts = parts
        self.num_skipped = tf.Variable(0, dtype=tf.int64, trainable=False)
        for optimizer, variables in parts:
            # Sonnet does this at the first `apply`: no variable can be made in a branch of a graph.
            optimizer._initialize(variables)

    def apply(self, gradients: Sequence[Sequence[tf.Tensor]], norms: Sequence[tf.Tensor]) -> None:
        """Take one step, or leave all variables and slots as they are and count it as skipped.

        Args:
          gradients: for each optimiser, in their order, what it descends.
          norms: global norms of the gradients before any clipping. One is infinite also where only
            the sum of squares is too large for float32: clipping would make all gradients NaN, and
            a second moment might stay infinite for ever.
        """
        is_finite = tf.reduce_all(tf.math.is_finite(norms))
        self.num_skipped.assign_add(tf.cast(tf.logical_not(is_finite), tf.int64))
        if is_finite:
            for (optimizer, variables), updates in zip(self._parts, gradients, strict=True):
                optimizer.apply(updates, variables)


def copy_variables(source: Sequence[tf.Variable], target: Sequence[tf.Variable]) -> None:
    """Give the variables of a target network the values of the online network's."""
    for online, copy in zip(source, target, strict=True):
        copy.assign(online)
