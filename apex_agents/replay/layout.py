"""How an agent's data lies in the replay: the seam between what is written and what is learned."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import reverb
import tensorflow as tf
from reverb import pybind

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.tables import TRANSITIONS, table_name

# Reference to a written value: returned by `RowStream.append`, used by items.
Reference = Any

# Overhead of an item, of each of its columns, and of a chunk, which holds rows of one column, as
# measured with Reverb 0.14 (`benchmarks/replay_memory.py`).
_ITEM_BYTES = 330
_COLUMN_BYTES = 300
_CHUNK_BYTES = 940
# Reverb compresses chunks: 84x84 frames of MsPacman to a 5th, of Pong to a 19th, of Battle Zone to
# a 7th; frames may take half of the estimate. For floats no compression is assumed.
_FRAME_COMPRESSION = 7
_SEND_TIMEOUT_MS = 500


class Layout(Protocol):
    """What an item is, how it is written and how it is read; a builder chooses it once.

    Reverb keeps rows in chunks of consecutive rows, and items refer to rows. Whole chunks travel
    when an item is sampled, and a chunk stays in memory until the last item that refers to it is
    removed.

    Attributes:
      signature: the columns of an item, by name; an unknown first size varies between items.
      padded_shapes: shapes to which the columns are padded in a batch, with zeros at the end.
      bytes_per_item: memory that an item and its rows take in a full table.
    """

    signature: dict[str, tf.TensorSpec]
    padded_shapes: dict[str, Any]
    bytes_per_item: float

    def make_writer(self, client: reverb.Client) -> Any:
        """Open the writer of one environment, with which the agent's adder works."""

    def unpack(self, item: Mapping[str, tf.Tensor]) -> Any:
        """Turn a batch of items, columns `[B, ...]` by name, into what the agent learns from."""


class RowStream:
    """Writes rows of a fixed number of columns, each of which a row may leave out.

    It calls Reverb's C++ writer: the Python layer above takes half of the time of a transition.
    """

    def __init__(
        self,
        client: reverb.Client,
        chunk_lengths: Sequence[int],
        replicas: int = 1,
        table: str = TRANSITIONS,
        num_rows: int | None = None,
    ):
        """Open a stream.

        Args:
          client: client of the replay server.
          chunk_lengths: for each column of a row, how many of its values share a chunk. An item
            waits for the chunks that it refers to: a column with few values needs short ones.
          replicas: times each item is added to the table.
          table: name of the table that items are added to.
          num_rows: newest rows that items can refer to; None for as many as share a chunk.
        """
        num_rows = num_rows or max(chunk_lengths)
        self._table = table_name(client, table)
        self._replicas = replicas
        self._stream = client.trajectory_writer(num_keep_alive_refs=num_rows)
        self._writer = self._stream._writer
        for column, chunk_length in enumerate(chunk_lengths):
            options = pybind.ConstantChunkerOptions(
                max_chunk_length=chunk_length, num_keep_alive_refs=num_rows
            )
            self._writer.ConfigureChunker(column, options)

    def append(self, *row: np.ndarray | None) -> list[Reference | None]:
        """Write a row, None where it has no value, and return a reference to each of its values."""
        return self._writer.Append(list(row))

    def create_item(
        self, item: Mapping[str, Reference | Sequence[Reference]], priority: float
    ) -> None:
        """Add an item to the table, once per replica.

        Each of its columns, by name, is one value or a list of consecutive values of a row column.
        """
        columns = [item[name] for name in sorted(item)]  # The order in which Reverb flattens.
        is_value = [not isinstance(column, list) for column in columns]
        references = [[c] if single else c for c, single in zip(columns, is_value, strict=True)]
        for _ in range(self._replicas):
            self._writer.CreateItem(self._table, priority, references, is_value)

    def flush(self, max_pending: int = 0, timeout_ms: int | None = None) -> None:
        """Send items until the server has confirmed all but `max_pending` of them.

        Raises:
          DeadlineExceededError: the timeout passed; the items are still sent.
        """
        self._stream.flush(max_pending, timeout_ms)

    def end_episode(self, timeout_ms: int | None = None) -> None:
        """Send all items, and let later ones refer to later rows only; raises as `flush` does."""
        self._stream.end_episode(timeout_ms=timeout_ms)

    def close(self) -> None:
        """Close the stream and drop the items that the server has not confirmed."""
        self._stream.close()


def repeat_until_sent(send: Callable[..., None], should_stop: Callable[[], bool]) -> None:
    """Repeat a blocking call of a stream until it succeeds or the program stops.

    Args:
      send: `flush` or `end_episode`, or a function that calls it with the same timeout.
      should_stop: asked before each attempt.
    """
    while not should_stop():
        with contextlib.suppress(reverb.errors.DeadlineExceededError):
            return send(timeout_ms=_SEND_TIMEOUT_MS)


def row_bytes(shape: Sequence[int], dtype: tf.DType) -> float:
    """Estimate the memory of a row of a column; frames are compressed."""
    return math.prod(shape) * dtype.size / (_FRAME_COMPRESSION if dtype == tf.uint8 else 1)


def estimate_bytes_per_item(
    replay: ReplayConfig,
    bytes_of_row: Sequence[float],
    chunk_length: int,
    rows_per_item: int,
    new_rows_per_item: int = 1,
    head_bytes: float | None = None,
) -> float:
    """Estimate the memory that each item of a full table takes, together with its rows.

      item_bytes + (head_bytes + new_rows * bytes_of_row * stay) / replicas

    Removing the oldest items frees their chunks at once, stay = 1. Removal by priority takes items
    in random order, and a chunk is freed with the last of the m items that refer to it, which stays
    stay = 1 + 1/2 + ... + 1/m times as long as the average item (exponential lifetimes).

    Args:
      replay: replicas and eviction policy.
      bytes_of_row: bytes of a row in each column: see `row_bytes`.
      chunk_length: rows that share a chunk.
      rows_per_item: rows to which an item refers, at most.
      new_rows_per_item: rows that are written for each item.
      head_bytes: bytes of a value that each item has in its own chunk; None if there is none.

    Returns:
      Bytes, within 30 % for floats.
    """
    stay = 1.0
    if replay.eviction_policy == "prioritized":
        rows = chunk_length + rows_per_item - 1
        items_per_chunk = -(-rows // new_rows_per_item) * replay.replicas
        stay = sum(1 / i for i in range(1, items_per_chunk + 1))
    stored = sum(_CHUNK_BYTES / chunk_length + num_bytes for num_bytes in bytes_of_row)
    stored *= new_rows_per_item * stay / replay.replicas
    if head_bytes is not None:
        stored += _COLUMN_BYTES + (_CHUNK_BYTES + head_bytes) / replay.replicas
    return _ITEM_BYTES + _COLUMN_BYTES * len(bytes_of_row) + stored
