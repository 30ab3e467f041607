"""Streams of rows into the replay server, and the items that refer to them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import reverb
from reverb import pybind

# What `append` returns for a value.
Reference = Any


class RowStream:
    """Writes rows with the same columns all the time, of which each may be left out.

    Reverb's own writer in Python looks after nested rows that grow and come in pieces, for half of
    the time that adding a transition took an actor; rows go to the writer in C++ below it.
    """

    def __init__(self, client: reverb.Client, num_columns: int, chunk_length: int):
        """Open a stream.

        Args:
          client: connected to the replay server.
          num_columns: of every row.
          chunk_length: rows that share a chunk, and that items can refer to.
        """
        self._stream = client.trajectory_writer(num_keep_alive_refs=chunk_length)
        self._writer = self._stream._writer
        for column in range(num_columns):
            options = pybind.ConstantChunkerOptions(
                max_chunk_length=chunk_length, num_keep_alive_refs=chunk_length
            )
            self._writer.ConfigureChunker(column, options)

    def append(self, *row: np.ndarray | None) -> list[Reference | None]:
        """Write a row, None where it has no value; return what items refer to its values by."""
        return self._writer.Append(list(row))

    def create_items(
        self,
        table: str,
        item: Mapping[str, Reference | Sequence[Reference]],
        priority: float,
        replicas: int,
    ) -> None:
        """Add an item `replicas` times.

        Args:
          table: its name.
          item: its columns by name: a value, or several consecutive ones of a column of the rows.
          priority: of the item.
          replicas: how often.
        """
        columns = [item[name] for name in sorted(item)]  # As Reverb flattens the table's signature.
        is_value = [not isinstance(column, list) for column in columns]
        references = [[c] if single else c for c, single in zip(columns, is_value, strict=True)]
        for _ in range(replicas):
            self._writer.CreateItem(table, priority, references, is_value)

    def flush(self, max_pending: int = 0, timeout_ms: int | None = None) -> None:
        """Send items until at most so many have not arrived.

        Raises:
          DeadlineExceededError: that took too long; they are sent all the same.
        """
        self._stream.flush(max_pending, timeout_ms)

    def end_episode(self, timeout_ms: int | None = None) -> None:
        """Send everything, and let no item refer to rows from before; raises as `flush`."""
        self._stream.end_episode(timeout_ms=timeout_ms)

    def close(self) -> None:
        """Give up what has not arrived."""
        self._stream.close()
