"""Streams of rows into a table, and the items that refer to them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import reverb
from reverb import pybind

from apex_agents.replay.tables import TRANSITIONS, table_name

# Reference to a written value: returned by `append`, used by items.
Reference = Any


class RowStream:
    """Writes rows of a fixed number of columns, each of which a row may leave out.

    It calls Reverb's C++ writer: the Python layer above takes half of the time of a transition.
    """

    def __init__(
        self,
        client: reverb.Client,
        num_columns: int,
        chunk_length: int,
        replicas: int = 1,
        table: str = TRANSITIONS,
    ):
        """Open a stream.

        Args:
          client: client of the replay server.
          num_columns: number of columns of a row.
          chunk_length: rows that share a chunk, and newest rows that items can refer to.
          replicas: times each item is added to the table.
          table: name of the table that items are added to.
        """
        self._table = table_name(client, table)
        self._replicas = replicas
        self._stream = client.trajectory_writer(num_keep_alive_refs=chunk_length)
        self._writer = self._stream._writer
        for column in range(num_columns):
            options = pybind.ConstantChunkerOptions(
                max_chunk_length=chunk_length, num_keep_alive_refs=chunk_length
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
