"""How the transitions of one lane get into the replay's memory, in each layout of `transitions`.

A writer is told of every observation, and makes an item of every transition that ends there:
`begin_episode(first observation)`, then at each further step `begin_step(observation)`, `add_item`
for every complete transition, `end_step()`. Reverb keeps rows in chunks of consecutive rows; whole
chunks travel when an item is sampled, and a chunk stays until the last item that refers to it goes.
"""

import collections
from typing import Any, Protocol

import numpy as np
import reverb

from apex_agents.replay.client import table_name
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import PartialTransition, pack_outcome, pack_transition

# Transitions that share a chunk when they leave the table together: costs about 0.6 KB less memory
# per transition than chunks of one.
_PACKED_CHUNK_LENGTH = 4


class TransitionWriter(Protocol):
    """Writes the transitions of one lane.

    Attributes:
      stream: Reverb's writer, for flushing, ending episodes and closing.
    """

    stream: reverb.TrajectoryWriter

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
    """Open the writer of one lane.

    Args:
      client: connected to the replay server.
      replay: who is removed decides how transitions share chunks.
      n_step: longest transition, in steps.
      frame_stack: frames per observation, 0 for the packed layout.
    """
    chunk_length = rows_per_chunk(replay, n_step, frame_stack)
    if frame_stack:
        return FrameWriter(client, frame_stack, chunk_length)
    return PackedWriter(client, n_step, chunk_length)


def rows_per_chunk(replay: ReplayConfig, n_step: int, frame_stack: int) -> int:
    """Return how many rows share a chunk; arguments as for `make_writer`."""
    if frame_stack:
        # From an item's first frame to the row of its outcome. Longer chunks would slow sampling.
        return frame_stack + n_step + 1
    # Removal by priority empties chunks in random order: with several transitions each, most of
    # the memory would soon be held by chunks of which one transition is left.
    return _PACKED_CHUNK_LENGTH if replay.remover == "fifo" else 1


class PackedWriter:
    """Writes every transition as one row."""

    def __init__(self, client: reverb.Client, n_step: int, chunk_length: int):
        """Open a stream whose chunks hold `chunk_length` transitions."""
        self.stream = _open_stream(client, ("transition",), chunk_length)
        self._table = table_name(client, TRANSITIONS)
        self._observations: collections.deque[np.ndarray] = collections.deque(maxlen=n_step + 1)

    def begin_episode(self, observation: np.ndarray) -> None:
        """Remember the first observation."""
        self.begin_step(observation)

    def begin_step(self, observation: np.ndarray) -> None:
        """Remember the newest observation."""
        self._observations.append(np.array(observation))

    def add_item(self, transition: PartialTransition, priority: float, replicas: int) -> bool:
        """Write the row, and the items that refer to it."""
        first, last = self._observations[-1 - transition.num_steps], self._observations[-1]
        row = pack_transition(first, pack_outcome(transition), last)
        if not np.isfinite(row).all():
            return False
        self.stream.append({"transition": row})
        item = {"transition": self.stream.history["transition"][-1]}
        _create_items(self.stream, self._table, item, priority, replicas)
        return True

    def end_step(self) -> None:
        """Do nothing: there is no row without a transition."""


class FrameWriter:
    """Writes every frame once; items refer to stacks of consecutive frames.

    The first transition that ends at an observation puts its outcome into the row of its frame. At
    the end of an episode several end at the same one: further rows hold an outcome alone.
    """

    def __init__(self, client: reverb.Client, frame_stack: int, chunk_length: int):
        """Open a stream that remembers as many rows as a chunk has, and no item spans more."""
        self._stack = frame_stack
        self.stream = _open_stream(client, ("observation", "outcome"), chunk_length)
        self._table = table_name(client, TRANSITIONS)
        self._row: dict[str, np.ndarray] = {}
        self._rows_since_frame = 0

    def begin_episode(self, observation: np.ndarray) -> None:
        """Write the frames of the first stack."""
        for frame in observation:
            self.stream.append({"observation": frame})

    def begin_step(self, observation: np.ndarray) -> None:
        """Begin a row with the newest frame."""
        self._row = {"observation": observation[-1]}
        self._rows_since_frame = 0

    def add_item(self, transition: PartialTransition, priority: float, replicas: int) -> bool:
        """Write a row with the outcome, and the items that refer to it and to frames."""
        outcome = pack_outcome(transition)
        if not np.isfinite(outcome).all():  # Frames are 8-bit numbers.
            return False
        self.stream.append({**self._row, "outcome": outcome})
        item = {
            "observation": self._frames(transition.num_steps + self._rows_since_frame),
            "outcome": self.stream.history["outcome"][-1],
            "next_observation": self._frames(self._rows_since_frame),
        }
        _create_items(self.stream, self._table, item, priority, replicas)
        self._row = {}
        self._rows_since_frame += 1
        return True

    def end_step(self) -> None:
        """Write the row if no transition did."""
        if self._row:
            self.stream.append(self._row)

    def _frames(self, rows_back: int) -> Any:
        """Refer to the stack whose newest frame is `rows_back` rows before the newest row."""
        # Contiguous, and with negative bounds: with gaps Reverb returns other rows than asked for,
        # and a positive bound that equals the column's length makes an empty slice.
        column = self.stream.history["observation"]
        frames = column[-rows_back - self._stack : -rows_back or None]
        if len(frames) != self._stack:
            raise AssertionError(f"{len(frames)} of {self._stack} frames are left in the writer.")
        return frames


def _open_stream(
    client: reverb.Client, columns: tuple[str, ...], chunk_length: int
) -> reverb.TrajectoryWriter:
    stream = client.trajectory_writer(num_keep_alive_refs=chunk_length)
    for column in columns:
        stream.configure((column,), num_keep_alive_refs=chunk_length, max_chunk_length=chunk_length)
    return stream


def _create_items(
    stream: reverb.TrajectoryWriter,
    table: str,
    item: dict[str, Any],
    priority: float,
    replicas: int,
) -> None:
    for _ in range(replicas):
        stream.create_item(table, priority, item)
