"""Writes the transitions of one environment to the replay, in each layout of `transitions`.

A writer is told of every observation, and makes an item of every transition that ends there:
`begin_episode(first observation)`, then at each further step `begin_step(observation)`, `add_item`
for every complete transition, `end_step()`. Reverb keeps rows in chunks of consecutive rows; whole
chunks travel when an item is sampled, and a chunk stays until the last item that refers to it goes.
"""

import collections
from typing import Protocol

import numpy as np
import reverb

from apex_agents.replay.client import table_name
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.packed_writer import PackedWriter
from apex_agents.replay.streams import Reference, RowStream
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import PartialTransition, pack_outcome

# Transitions that share a chunk when they leave the table together: costs about 0.6 KB less memory
# per transition than chunks of one.
_PACKED_CHUNK_LENGTH = 4


class TransitionWriter(Protocol):
    """Writes the transitions of one environment.

    Attributes:
      stream: for flushing, ending episodes and closing.
    """

    stream: RowStream

    def begin_episode(self, observation: np.ndarray) -> None:
        """Begin with the observation of a FIRST step."""

    def begin_step(self, observation: np.ndarray) -> None:
        """Go on to the next observation."""

    def add_item(self, transition: PartialTransition, priority: float, replicas: int) -> bool:
        """Add a transition that ends at the newest observation, `replicas` times.

        Returns:
          Whether all its numbers are finite; if not, it is left out.
        """

    def end_step(self) -> None:
        """Say that no more transitions end at the newest observation."""


def make_writer(
    client: reverb.Client, replay: ReplayConfig, n_step: int, frame_stack: int
) -> TransitionWriter:
    """Open the writer of one environment.

    Args:
      client: connected to the replay server.
      replay: who is removed decides how transitions share chunks.
      n_step: longest transition, in steps.
      frame_stack: frames per observation, 0 for the packed layout.
    """
    chunk_length = rows_per_chunk(replay, n_step, frame_stack)
    if frame_stack:
        return FrameWriter(client, n_step, frame_stack, chunk_length)
    return PackedWriter(client, n_step, chunk_length)


def rows_per_chunk(replay: ReplayConfig, n_step: int, frame_stack: int) -> int:
    """Return how many rows share a chunk; arguments as for `make_writer`."""
    if frame_stack:
        # The frames of an item and one more. Longer chunks would slow sampling.
        return frame_stack + n_step + 1
    # Removal by priority empties chunks in random order: with several transitions each, most of
    # the memory would soon be held by chunks of which one transition is left.
    return _PACKED_CHUNK_LENGTH if replay.eviction_policy == "fifo" else 1


class FrameWriter:
    """Writes every frame once; items refer to all frames from their first to their last one.

    The first transition that ends at an observation puts its outcome into the row of its frame. At
    the end of an episode several end at the same one: further rows hold an outcome alone.
    """

    def __init__(self, client: reverb.Client, n_step: int, frame_stack: int, chunk_length: int):
        """Open a stream that remembers as many rows as a chunk has, and no item spans more."""
        self.stream = RowStream(client, 2, chunk_length)  # Frames and outcomes.
        self._table = table_name(client, TRANSITIONS)
        self._frames: collections.deque[Reference] = collections.deque(maxlen=frame_stack + n_step)
        self._num_padding = n_step - 1
        self._frame: np.ndarray | None = None  # Not written yet.

    def begin_episode(self, observation: np.ndarray) -> None:
        """Write the frames of the first stack."""
        self._frames.clear()
        # A transition of less than n steps has frames before its first one, for all to be as long.
        for frame in (*[observation[0]] * self._num_padding, *observation):
            self._append(frame, None)

    def begin_step(self, observation: np.ndarray) -> None:
        """Begin a row with the newest frame."""
        self._frame = observation[-1]

    def add_item(self, transition: PartialTransition, priority: float, replicas: int) -> bool:
        """Write a row with the outcome, and the items that refer to it and to frames."""
        outcome = pack_outcome(transition)
        if outcome is None:  # Frames are 8-bit numbers.
            return False
        reference = self._append(self._frame, outcome)
        self._frame = None
        frames = list(self._frames)  # Without a gap: with one Reverb returns other rows.
        if len(frames) != self._frames.maxlen:
            raise AssertionError(
                f"{len(frames)} of {self._frames.maxlen} frames are in the writer."
            )
        item = {"frames": frames, "outcome": reference}
        self.stream.create_items(self._table, item, priority, replicas)
        return True

    def end_step(self) -> None:
        """Write the row if no transition did."""
        if self._frame is not None:
            self._append(self._frame, None)

    def _append(self, frame: np.ndarray | None, outcome: np.ndarray | None) -> Reference | None:
        frame_reference, outcome_reference = self.stream.append(frame, outcome)
        if frame is not None:
            self._frames.append(frame_reference)
        return outcome_reference
