"""The seam between an algorithm and the learner: one update on one batch."""

from collections.abc import Mapping, Sequence
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


def copy_variables(source: Sequence[tf.Variable], target: Sequence[tf.Variable]) -> None:
    """Give the variables of a target network the values of the online network's."""
    for online, copy in zip(source, target, strict=True):
        copy.assign(online)
