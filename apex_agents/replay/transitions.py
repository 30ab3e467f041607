"""N-step transitions and their two layouts in the replay.

Every column of an item costs Reverb memory and time, so that items have as few as possible:

- packed: one column `transition`, a float32 vector `[S_t..., outcome..., S_{t+n}...]`;
- frames: `frames`, the last n + k frames up to the end of the transition, each of which is stored
  once for all items that refer to it, and `outcome` (see `pack_outcome`). An observation is a stack
  of k frames or, k = 1, a single one; what it has beside its frame is in `outcome`.

float32 holds discrete actions, values of 8-bit observations and the first 16 million learner steps
exactly.

A writer follows the steps of an episode: `begin_episode` at FIRST, then at each further time step
`begin_step`, `add_item` for every transition that ends there, and `end_step`. It keeps observations
without a copy: their arrays must not change.
"""

import collections
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.environments.frames import Frames, SlideCheck, find_frames, restore
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.layout import Reference, RowStream, estimate_bytes_per_item, row_bytes

_MAX_FLOAT32 = float(np.finfo(np.float32).max)
# Transitions that share a chunk when they are removed in order: about 0.6 KB less memory per
# transition than chunks of one.
_PACKED_CHUNK_LENGTH = 4


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


def make_layout(
    spec: Any, replay: ReplayConfig, n_step: int, frame_stack: int = 0
) -> "PackedLayout | FrameLayout":
    """Choose how the transitions of an environment lie in the replay.

    Args:
      spec: specification of one environment; observations include the stacked frames.
      replay: replicas and eviction policy.
      n_step: n, longest transition in agent steps.
      frame_stack: frames that are stacked along the first axis of an observation, oldest first; 0
        if observations are no stacks.
    """
    frames = find_frames(spec, frame_stack)
    return FrameLayout(spec, replay, n_step, frames) if frames else PackedLayout(spec, replay)


class PackedLayout:
    """Every transition is a row of one column; see `replay.layout.Layout`."""

    def __init__(self, spec: Any, replay: ReplayConfig):
        """Lay out transitions of an environment; `replay` says how they are evicted."""
        self._spec = spec
        self._replay = replay
        # Removal by priority empties chunks in random order: with several transitions each, most of
        # the memory would soon be held by chunks of which one transition is left.
        self._chunk_length = _PACKED_CHUNK_LENGTH if replay.eviction_policy == "fifo" else 1
        row = tf.TensorSpec([2 * math.prod(spec.observations.shape) + _outcome_size(spec)])
        self.signature = {"transition": row}
        self.padded_shapes: dict[str, Any] = {"transition": row.shape}
        self.bytes_per_item = estimate_bytes_per_item(
            replay, [row_bytes(row.shape, row.dtype)], self._chunk_length, rows_per_item=1
        )

    def make_writer(self, client: reverb.Client) -> "PackedWriter":
        return PackedWriter(RowStream(client, [self._chunk_length], self._replay.replicas))

    def unpack(self, item: Mapping[str, tf.Tensor]) -> Transition:
        size = math.prod(self._spec.observations.shape)
        first, outcome, last = tf.split(item["transition"], [size, -1, size], axis=1)
        observation, next_observation = [
            restore(column, [-1], self._spec.observations) for column in (first, last)
        ]
        return _make_transition(observation, outcome, next_observation, self._spec)


class PackedWriter:
    """Writes every transition as a row of its own, to a stream of one column."""

    def __init__(self, stream: RowStream):
        self.stream = stream

    def begin_episode(self, observation: np.ndarray) -> None:
        """Do nothing: no transition ends at a FIRST step."""

    def begin_step(self, observation: np.ndarray) -> None:
        self._newest = observation

    def add_item(self, observation: np.ndarray, outcome: np.ndarray, priority: float) -> bool:
        """Write a transition from `observation` to the newest one; see `FrameWriter.add_item`."""
        parts = (np.ravel(observation), outcome, np.ravel(self._newest))
        row = np.concatenate(parts, dtype=np.float32, casting="unsafe")
        if not np.isfinite(row).all():
            return False
        (reference,) = self.stream.append(row)
        self.stream.create_item({"transition": reference}, priority)
        return True

    def end_step(self) -> None:
        """Do nothing: there is no row without a transition."""


class FrameLayout:
    """Every frame is a row, and an item refers to n + k of them; see `replay.layout.Layout`."""

    def __init__(self, spec: Any, replay: ReplayConfig, n_step: int, of_observation: Frames):
        """Lay out transitions of an environment; `make_layout` describes the arguments."""
        self._spec = spec
        self._replay = replay
        self._n_step = n_step
        self._of_observation = of_observation
        num_frames = n_step + (of_observation.stack or 1)
        # The frames of an item and one more. Longer chunks would slow sampling.
        self._chunk_length = num_frames + 1
        frames = tf.TensorSpec((num_frames, *of_observation.shape), of_observation.dtype)
        size = 2 * of_observation.rest_size + _outcome_size(spec)
        outcome = tf.TensorSpec([size], tf.float32)
        self.signature = {"frames": frames, "outcome": outcome}
        self.padded_shapes: dict[str, Any] = {"frames": frames.shape, "outcome": outcome.shape}
        self.bytes_per_item = estimate_bytes_per_item(
            replay,
            [row_bytes(frames.shape[1:], frames.dtype), row_bytes([size], tf.float32)],
            self._chunk_length,
            rows_per_item=num_frames,
        )

    def make_writer(self, client: reverb.Client) -> "FrameWriter":
        stream = RowStream(client, 2 * [self._chunk_length], self._replay.replicas)
        return FrameWriter(stream, self._n_step, self._of_observation)

    def unpack(self, item: Mapping[str, tf.Tensor]) -> Transition:
        frames, parts = item["frames"], self._of_observation
        rest_sizes = [parts.rest_size, -1, parts.rest_size]
        first_rest, outcome, last_rest = tf.split(item["outcome"], rest_sizes, axis=1)
        num_steps = tf.cast(outcome[:, -1], tf.int32)
        first = (self._n_step - num_steps)[:, tf.newaxis] + tf.range(parts.stack or 1)
        observation = parts.merge(tf.gather(frames, first, batch_dims=1), first_rest, [-1])
        next_observation = parts.merge(frames[:, self._n_step :], last_rest, [-1])
        return _make_transition(observation, outcome, next_observation, self._spec)


class FrameWriter:
    """Writes every frame once; items refer to all frames from their first to their last one.

    The stream has a column of frames and one of outcomes. The first transition that ends at an
    observation puts its outcome into the row of its frame. Where several transitions end, at the
    end of an episode, further rows hold an outcome alone. What observations have beside frames is
    a part of the outcome.
    """

    def __init__(self, stream: RowStream, n_step: int, of_observation: Frames):
        """Take the stream, and how observations come apart."""
        self.stream = stream
        num_frames = (of_observation.stack or 1) + n_step
        self._frames: collections.deque[Reference] = collections.deque(maxlen=num_frames)
        self._of_observation = of_observation
        self._num_padding = n_step - 1
        self._slide = SlideCheck()

    def begin_episode(self, observation: np.ndarray) -> None:
        """Write the frames of the first observation."""
        stack, _ = self._as_stack(observation)
        self._frames.clear()
        self._slide.follow(stack, is_first=True)
        # Shorter transitions need as many frames: the first one is repeated before itself.
        for frame in (*[stack[0]] * self._num_padding, *stack):
            self._append(frame, None)

    def begin_step(self, observation: np.ndarray) -> None:
        """Begin a row with the newest frame.

        Raises:
          ValueError: the stack did not slide by one frame since the step before.
        """
        stack, self._newest_rest = self._as_stack(observation)
        self._slide.follow(stack, is_first=False)
        self._frame: np.ndarray | None = stack[-1]  # None as soon as it is written.

    def add_item(self, observation: np.ndarray, outcome: np.ndarray, priority: float) -> bool:
        """Write a row with the outcome, and an item that refers to it and to frames.

        Args:
          observation: S_t; the item ends at the newest observation.
          outcome: vector of `pack_outcome`.
          priority: initial priority.

        Returns:
          Whether all observed numbers are finite; if not, there is no item.
        """
        if self._of_observation.rest_size:
            first_rest = self._of_observation.split(observation)[1]
            outcome = np.concatenate([first_rest, outcome, self._newest_rest], dtype=np.float32)
        reference = self._append(self._frame, outcome)
        self._frame = None
        # Must be consecutive rows: Reverb returns wrong rows for an item with a gap.
        frames = list(self._frames)
        assert len(frames) == self._frames.maxlen
        if None in frames or not np.isfinite(outcome).all():
            return False
        self.stream.create_item({"frames": frames, "outcome": reference}, priority)
        return True

    def end_step(self) -> None:
        """Write the row if no transition did."""
        if self._frame is not None:
            self._append(self._frame, None)

    def _as_stack(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frame, rest = self._of_observation.split(observation)
        return frame if self._of_observation.stack else frame[np.newaxis], rest

    def _append(self, frame: np.ndarray | None, outcome: np.ndarray | None) -> Reference | None:
        """Write a row and return the reference to its outcome; None stands for a bad frame."""
        frame_reference, outcome_reference = self.stream.append(frame, outcome)
        if frame is not None:
            is_finite = frame.dtype.kind != "f" or np.isfinite(frame).all()
            self._frames.append(frame_reference if is_finite else None)
        return outcome_reference


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


def _make_transition(
    observation: tf.Tensor, outcome: tf.Tensor, next_observation: tf.Tensor, spec: Any
) -> Transition:
    return Transition(
        observation=observation,
        action=restore(outcome[:, :-4], [-1], spec.actions),
        n_step_return=outcome[:, -4],
        n_step_discount=outcome[:, -3],
        next_observation=next_observation,
        learner_steps=outcome[:, -2],
    )


def _outcome_size(spec: Any) -> int:
    return math.prod(spec.actions.shape) + 4  # R, D, learner steps and number of steps.
