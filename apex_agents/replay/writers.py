"""Writes the transitions of one environment to the replay, in each layout of `transitions`.

A writer follows the steps of an episode: `begin_episode` at FIRST, then at each further time step
`begin_step`, `add_item` for every transition that ends there, and `end_step`. It keeps observations
without a copy: their arrays must not change.

Reverb keeps rows in chunks of consecutive rows: whole chunks travel when an item is sampled, and a
chunk stays in memory until the last item that refers to it is removed.
"""

import collections

import numpy as np
import reverb

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.streams import Reference, RowStream
from apex_agents.replay.transitions import frames_per_observation, pack_transition

# Transitions that share a chunk when they are removed in order: about 0.6 KB less memory per
# transition than chunks of one.
_PACKED_CHUNK_LENGTH = 4
# Steps between two checks. Comparing two Atari stacks takes 2.5 us, adding a transition 110 us.
_SLIDE_CHECK_PERIOD = 16


def make_writer(
    client: reverb.Client,
    replay: ReplayConfig,
    n_step: int,
    frame_stack: int,
    observation: np.ndarray,
) -> "PackedWriter | FrameWriter":
    """Open the writer of one environment.

    Args:
      client: client of the replay server.
      replay: replicas, and the eviction policy, which decides how transitions share chunks.
      n_step: longest transition, in agent steps.
      frame_stack: frames per observation, 0 if observations are no stack.
      observation: any one, of which shape and dtype are read.
    """
    num_frames = frames_per_observation(observation, frame_stack)
    chunk_length = rows_per_chunk(replay, n_step, num_frames)
    if num_frames:
        stream = RowStream(client, 2, chunk_length, replay.replicas)
        return FrameWriter(stream, n_step, frame_stack)
    return PackedWriter(RowStream(client, 1, chunk_length, replay.replicas))


def rows_per_chunk(replay: ReplayConfig, n_step: int, num_frames: int) -> int:
    """Return how many rows share a chunk; `num_frames` is 0 for the packed layout."""
    if num_frames:
        # The frames of an item and one more. Longer chunks would slow sampling.
        return num_frames + n_step + 1
    # Removal by priority empties chunks in random order: with several transitions each, most of
    # the memory would soon be held by chunks of which one transition is left.
    return _PACKED_CHUNK_LENGTH if replay.eviction_policy == "fifo" else 1


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
        row = pack_transition(observation, outcome, self._newest)
        if not np.isfinite(row).all():
            return False
        (reference,) = self.stream.append(row)
        self.stream.create_item({"transition": reference}, priority)
        return True

    def end_step(self) -> None:
        """Do nothing: there is no row without a transition."""


class FrameWriter:
    """Writes every frame once; items refer to all frames from their first to their last one.

    The stream has a column of frames and one of outcomes. The first transition that ends at an
    observation puts its outcome into the row of its frame. Where several transitions end, at the
    end of an episode, further rows hold an outcome alone.
    """

    def __init__(self, stream: RowStream, n_step: int, frame_stack: int):
        """Take the stream; with `frame_stack` 0 every observation is one frame."""
        self.stream = stream
        num_frames = (frame_stack or 1) + n_step
        self._frames: collections.deque[Reference] = collections.deque(maxlen=num_frames)
        self._is_stack = frame_stack > 0
        self._num_padding = n_step - 1
        self._num_steps = 0

    def begin_episode(self, observation: np.ndarray) -> None:
        """Write the frames of the first observation."""
        observation = self._as_stack(observation)
        self._frames.clear()
        self._num_steps = 0
        self._newest = observation
        # Shorter transitions need as many frames: the first one is repeated before itself.
        for frame in (*[observation[0]] * self._num_padding, *observation):
            self._append(frame, None)

    def begin_step(self, observation: np.ndarray) -> None:
        """Begin a row with the newest frame.

        Raises:
          ValueError: the stack did not slide by one frame since the step before.
        """
        observation = self._as_stack(observation)
        if self._num_steps % _SLIDE_CHECK_PERIOD == 0:
            _check_slide(self._newest, observation)
        self._num_steps += 1
        self._newest = observation
        self._frame: np.ndarray | None = observation[-1]  # None as soon as it is written.

    def add_item(self, observation: np.ndarray, outcome: np.ndarray, priority: float) -> bool:
        """Write a row with the outcome, and an item that refers to it and to frames.

        Args:
          observation: S_t; the item ends at the newest observation.
          outcome: vector of `transitions.pack_outcome`.
          priority: initial priority.

        Returns:
          Whether all observed numbers are finite; if not, there is no item.
        """
        reference = self._append(self._frame, outcome)
        self._frame = None
        frames = list(self._frames)  # Reverb returns other rows if there is a gap among them.
        assert len(frames) == self._frames.maxlen
        if None in frames:
            return False
        self.stream.create_item({"frames": frames, "outcome": reference}, priority)
        return True

    def end_step(self) -> None:
        """Write the row if no transition did."""
        if self._frame is not None:
            self._append(self._frame, None)

    def _as_stack(self, observation: np.ndarray) -> np.ndarray:
        return observation if self._is_stack else observation[np.newaxis]

    def _append(self, frame: np.ndarray | None, outcome: np.ndarray | None) -> Reference | None:
        """Write a row and return the reference to its outcome; None stands for a bad frame."""
        frame_reference, outcome_reference = self.stream.append(frame, outcome)
        if frame is not None:
            is_finite = frame.dtype.kind != "f" or np.isfinite(frame).all()
            self._frames.append(frame_reference if is_finite else None)
        return outcome_reference


def _check_slide(previous: np.ndarray, observation: np.ndarray) -> None:
    # Bytes are compared rather than numbers, of which NaN differs from itself.
    if observation[:-1].tobytes() != previous[1:].tobytes():
        raise ValueError(
            f"agent.frame_stack is {len(observation)}, but observations of shape "
            f"{observation.shape} do not slide by one frame per step. Stack frames along the first "
            "axis, oldest first, or set agent.frame_stack=0."
        )
