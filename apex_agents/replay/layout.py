"""How an agent's data lies in the replay: the seam between what is written and what is learned."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import reverb
import tensorflow as tf

from apex_agents.replay.config import ReplayConfig

# Overhead of an item, of each of its columns, and of a chunk, which holds rows of one column, as
# measured with Reverb 0.14 (`benchmarks/replay_memory.py`).
_ITEM_BYTES = 330
_COLUMN_BYTES = 300
_CHUNK_BYTES = 940


class Layout(Protocol):
    """What an item is, how it is written and how it is read; a builder chooses it once.

    Reverb keeps rows in chunks of consecutive rows, and items refer to rows. Whole chunks travel
    when an item is sampled, and a chunk stays in memory until the last item that refers to it is
    removed.

    Attributes:
      signature: the columns of an item, by name.
      bytes_per_item: memory that an item and its rows take in a full table.
    """

    signature: dict[str, tf.TensorSpec]
    bytes_per_item: float

    def make_writer(self, client: reverb.Client) -> Any:
        """Open the writer of one environment, with which the agent's adder works."""

    def unpack(self, item: Mapping[str, tf.Tensor]) -> Any:
        """Turn a batch of items, columns `[B, ...]` by name, into what the agent learns from."""


def estimate_bytes_per_item(
    replay: ReplayConfig, row_bytes: Sequence[float], chunk_length: int, rows_per_item: int
) -> float:
    """Estimate the memory that each item of a full table takes, together with its rows.

      item_bytes + row_bytes / replicas * stay

    Removing the oldest items frees their chunks at once, stay = 1. Removal by priority takes items
    in random order, and a chunk is freed with the last of the m items that refer to it, which stays
    stay = 1 + 1/2 + ... + 1/m times as long as the average item (exponential lifetimes).

    Args:
      replay: replicas and eviction policy.
      row_bytes: bytes of a row in each column, compressed; a row is written for each transition.
      chunk_length: rows that share a chunk.
      rows_per_item: rows to which an item refers, at most.

    Returns:
      Bytes, within 30 % for floats.
    """
    stay = 1.0
    if replay.eviction_policy == "prioritized":
        items_per_chunk = (chunk_length + rows_per_item - 1) * replay.replicas
        stay = sum(1 / i for i in range(1, items_per_chunk + 1))
    stored = sum(_CHUNK_BYTES / chunk_length + num_bytes for num_bytes in row_bytes)
    return _ITEM_BYTES + _COLUMN_BYTES * len(row_bytes) + stored * stay / replay.replicas
