"""What one item of the transition table looks like, for those who write it and those who read it.

Every column of an item costs memory and time of its own in Reverb, so that items have as few as
possible. There are two layouts:

- packed: one column `transition`, a float32 vector `[S_t..., outcome..., S_{t+n}...]`;
- stacks of frames: `frames` are the last n + stack of them up to the end of the transition, which
  are stored once for all items that have them; `outcome` is a column of its own.

The outcome is the float32 vector `[A_t..., R, D, learner steps, steps]`. float32 holds any discrete
action, any value of an 8-bit observation and the first 16 million learner steps exactly.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_NUM_SCALARS = 4  # Of an outcome, behind the action.


class Transition(NamedTuple):
    """A batch of n-step transitions.

    Attributes:
      observation: `[B, ...]`, S_t.
      action: `[B]` int32 or `[B, D]`, A_t.
      n_step_return: `[B]`, R = sum_{k<n} (prod_{j<k} gamma d_{t+1+j}) r_{t+1+k}.
      n_step_discount: `[B]`, D = prod_{k<n} gamma d_{t+1+k}.
      next_observation: `[B, ...]`, S_{t+n}, or the last observation of a shorter transition.
      learner_steps: `[B]`, learner steps of the parameters with which A_t was chosen: tells how old
        a sample is; nothing is learned from it.
    """

    observation: tf.Tensor
    action: tf.Tensor
    n_step_return: tf.Tensor
    n_step_discount: tf.Tensor
    next_observation: tf.Tensor
    learner_steps: tf.Tensor


@dataclasses.dataclass(slots=True)
class PartialTransition:
    """A transition that grows with every step, until it is complete and ends there.

    Attributes:
      action: `[]` or `[D]`, A_t.
      q_taken: q(S_t, A_t) as it was while acting.
      learner_steps: of the parameters with which A_t was chosen.
      n_step_return: R = sum_{k} (prod_{j<k} gamma d_j) r_k so far.
      n_step_discount: D = prod_{k} gamma d_k so far.
      num_steps: steps since its first observation.
    """

    action: np.ndarray
    q_taken: float
    learner_steps: int
    n_step_return: float = 0.0
    n_step_discount: float = 1.0
    num_steps: int = 0


def item_signature(spec: Any, n_step: int = 0, frame_stack: int = 0) -> dict[str, tf.TensorSpec]:
    """Describe one item.

    Args:
      spec: of one environment; `observations` (stacked frames included) and `actions` are read.
      n_step: n, of transitions of stacked frames.
      frame_stack: frames per observation, 0 for the packed layout.
    """
    outcome_size = _size(spec.actions) + _NUM_SCALARS
    if not frame_stack:
        size = 2 * _size(spec.observations) + outcome_size
        return {"transition": tf.TensorSpec([size], tf.float32)}
    frames_shape = (frame_stack + n_step, *spec.observations.shape[1:])
    return {
        "frames": tf.TensorSpec(frames_shape, spec.observations.dtype),
        "outcome": tf.TensorSpec([outcome_size], tf.float32),
    }


def pack_outcome(transition: PartialTransition) -> np.ndarray | None:
    """Return the outcome of a transition, None unless all its numbers are finite in float32."""
    numbers = transition.action.ravel().tolist()
    numbers += [transition.n_step_return, transition.n_step_discount]
    numbers += [transition.learner_steps, transition.num_steps]
    if not all(-_MAX_FLOAT32 <= number <= _MAX_FLOAT32 for number in numbers):
        return None
    return np.array(numbers, np.float32)


def pack_transition(
    observation: np.ndarray, outcome: np.ndarray, next_observation: np.ndarray
) -> np.ndarray:
    """Return the float32 vector `[S_t..., outcome..., S_{t+n}...]`."""
    parts = (np.ravel(observation), outcome, np.ravel(next_observation))
    return np.concatenate(parts, dtype=np.float32, casting="unsafe")


def unpack_item(item: Mapping[str, tf.Tensor], spec: Any) -> Transition:
    """Turn a batch of items, of either layout, into a batch of transitions.

    Args:
      item: columns by name, `[B, ...]` each.
      spec: of one environment.
    """
    if "transition" in item:
        size = _size(spec.observations)
        columns = tf.split(item["transition"], [size, -1, size], axis=1)
        observation, next_observation = [_restore(columns[i], spec.observations) for i in (0, 2)]
        outcome = columns[1]
    else:
        outcome = item["outcome"]
        observation, next_observation = _split_frames(
            item["frames"], tf.cast(outcome[:, -1], tf.int32), spec.observations.shape[0]
        )
    return Transition(
        observation=observation,
        action=_restore(outcome[:, :-_NUM_SCALARS], spec.actions),
        n_step_return=outcome[:, -4],
        n_step_discount=outcome[:, -3],
        next_observation=next_observation,
        learner_steps=outcome[:, -2],
    )


def _split_frames(
    frames: tf.Tensor, num_steps: tf.Tensor, frame_stack: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first and the last observation, `[B, stack, ...]`, of transitions.

    Args:
      frames: `[B, n + stack, ...]`.
      num_steps: `[B]`, of each transition, at most n.
      frame_stack: frames per observation.
    """
    n_step = frames.shape[1] - frame_stack
    indices = (n_step - num_steps)[:, tf.newaxis] + tf.range(frame_stack)
    return tf.gather(frames, indices, batch_dims=1), frames[:, n_step:]


def _size(array_spec: Any) -> int:
    return int(np.prod(array_spec.shape, dtype=int))


def _restore(rows: tf.Tensor, array_spec: Any) -> tf.Tensor:
    """Give flat rows `[B, size]` the shape and the dtype of a spec."""
    return tf.cast(tf.reshape(rows, [-1, *array_spec.shape]), array_spec.dtype)
