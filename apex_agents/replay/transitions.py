"""The layout of an item of the transition table: how it is packed and unpacked.

Every column of an item costs Reverb memory and time, so that items have as few as possible:

- packed: one column `transition`, a float32 vector `[S_t..., outcome..., S_{t+n}...]`;
- images: `frames`, the last n + k frames up to the end of the transition, each of which is stored
  once for all items that refer to it, and `outcome` (see `pack_outcome`). An observation is a stack
  of k = `frame_stack` frames or, with `frame_stack` 0, one frame, k = 1.

float32 holds discrete actions, values of 8-bit observations and the first 16 million learner steps
exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_NUM_SCALARS = 4  # Numbers of an outcome behind the action.


class Transition(NamedTuple):
    """A batch of n-step transitions.

    Attributes:
      observation: `[B, ...]`, S_t.
      action: `[B]` int32 or `[B, D]`, A_t.
      n_step_return: `[B]`, R = sum_{k<n} (prod_{j<k} gamma d_{t+1+j}) r_{t+1+k}.
      n_step_discount: `[B]`, D = prod_{k<n} gamma d_{t+1+k}.
      next_observation: `[B, ...]`, S_{t+n}, or the last observation of a shorter transition.
      learner_steps: `[B]`, learner steps of the parameters with which A_t was chosen; used to
        measure the age of samples, not to learn.
    """

    observation: tf.Tensor
    action: tf.Tensor
    n_step_return: tf.Tensor
    n_step_discount: tf.Tensor
    next_observation: tf.Tensor
    learner_steps: tf.Tensor


def frames_per_observation(observations: Any, frame_stack: int) -> int:
    """Return k, 0 for the packed layout.

    Args:
      observations: an observation or the spec of observations.
      frame_stack: frames that are stacked along the first axis, 0 if observations are no stack.
    """
    is_image = observations.dtype == np.uint8 and len(observations.shape) > 1
    return frame_stack or int(is_image)


def item_signature(spec: Any, n_step: int = 0, frame_stack: int = 0) -> dict[str, tf.TensorSpec]:
    """Describe one item.

    Args:
      spec: specification of one environment; observations include the stacked frames.
      n_step: n, longest transition; needed for images only.
      frame_stack: frames per observation, 0 if observations are no stack.
    """
    outcome_size = _size(spec.actions) + _NUM_SCALARS
    num_frames = frames_per_observation(spec.observations, frame_stack)
    if not num_frames:
        size = 2 * _size(spec.observations) + outcome_size
        return {"transition": tf.TensorSpec([size], tf.float32)}
    frame_shape = spec.observations.shape[1 if frame_stack else 0 :]
    frames_shape = (num_frames + n_step, *frame_shape)
    return {
        "frames": tf.TensorSpec(frames_shape, spec.observations.dtype),
        "outcome": tf.TensorSpec([outcome_size], tf.float32),
    }


def pack_outcome(
    action: np.ndarray,
    n_step_return: float,
    n_step_discount: float,
    learner_steps: int,
    num_steps: int,
) -> np.ndarray | None:
    """Return the outcome `[A_t..., R, D, learner steps, num steps]` of a transition.

    None stands for numbers that are not finite in float32. `num_steps` are the agent steps from S_t
    to the last observation, at most n.
    """
    numbers = action.ravel().tolist()
    numbers += [n_step_return, n_step_discount, learner_steps, num_steps]
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
    """Turn a batch of items, columns `[B, ...]` of either layout, into a batch of transitions."""
    if "transition" in item:
        size = _size(spec.observations)
        columns = tf.split(item["transition"], [size, -1, size], axis=1)
        observation, next_observation = [_restore(columns[i], spec.observations) for i in (0, 2)]
        outcome = columns[1]
    else:
        outcome = item["outcome"]
        observation, next_observation = _split_frames(
            item["frames"], tf.cast(outcome[:, -1], tf.int32), spec.observations.shape
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
    frames: tf.Tensor, num_steps: tf.Tensor, shape: Sequence[int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first and the last observation, `[B, *shape]`, of frames `[B, n + k, ...]`."""
    if len(frames.shape) - 2 == len(shape):  # An observation is one frame.
        n_step = frames.shape[1] - 1
        return tf.gather(frames, n_step - num_steps, batch_dims=1), frames[:, n_step]
    frame_stack = shape[0]
    n_step = frames.shape[1] - frame_stack
    indices = (n_step - num_steps)[:, tf.newaxis] + tf.range(frame_stack)
    return tf.gather(frames, indices, batch_dims=1), frames[:, n_step:]


def _size(array_spec: Any) -> int:
    return int(np.prod(array_spec.shape, dtype=int))


def _restore(rows: tf.Tensor, array_spec: Any) -> tf.Tensor:
    """Give flat rows `[B, size]` the shape and the dtype of a spec."""
    return tf.cast(tf.reshape(rows, [-1, *array_spec.shape]), array_spec.dtype)
