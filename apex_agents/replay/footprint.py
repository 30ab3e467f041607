"""Memory that a full replay takes: its items, and the chunks of rows that they refer to."""

from collections.abc import Mapping

import tensorflow as tf

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.writers import rows_per_chunk

# Overhead of an item, of each of its columns, and of a chunk, which holds rows of one column, as
# measured with Reverb 0.14 (`benchmarks/replay_memory.py`).
_ITEM_BYTES = 330
_COLUMN_BYTES = 300
_CHUNK_BYTES = 940
# Reverb compresses chunks: 84x84 frames of MsPacman to a 5th, of Pong to a 19th, of Battle Zone to
# a 7th. For floats no compression is assumed.
_FRAME_COMPRESSION = 7


def estimate_replay_bytes(
    config: ReplayConfig, signature: Mapping[str, tf.TensorSpec], n_step: int
) -> int:
    """Estimate the memory that a full table takes.

      max_size * item_bytes + num_rows * row_bytes,   num_rows = max_size / replicas * stay

    Removing the oldest items frees their chunks at once, stay = 1. Removal by priority takes items
    in random order, and a chunk is freed with the last of the m items that refer to it, which stays
    stay = 1 + 1/2 + ... + 1/m times as long as the average item (exponential lifetimes).

    Args:
      config: settings of the table.
      signature: signature of an item; see `transitions.item_signature`.
      n_step: longest transition, in agent steps.

    Returns:
      Bytes, within 30 % for packed rows. Frames of a game may compress twice as well.
    """
    frame_stack = signature["frames"].shape[0] - n_step if "frames" in signature else 0
    chunk_length = rows_per_chunk(config, n_step, frame_stack)
    row_bytes = sum(
        _CHUNK_BYTES / chunk_length + _row_bytes(name, spec) for name, spec in signature.items()
    )
    num_rows = config.max_size / config.replicas
    if config.eviction_policy == "prioritized":
        rows_per_item = frame_stack + n_step if frame_stack else 1
        items_per_chunk = (chunk_length + rows_per_item - 1) * config.replicas
        num_rows *= sum(1 / i for i in range(1, items_per_chunk + 1))
    item_bytes = _ITEM_BYTES + _COLUMN_BYTES * len(signature)
    return round(config.max_size * item_bytes + num_rows * row_bytes)


def _row_bytes(name: str, spec: tf.TensorSpec) -> float:
    """Return the bytes of one row of a column; an item refers to several rows of frames."""
    shape = spec.shape[1:] if name == "frames" else spec.shape
    is_compressed = name == "frames" and spec.dtype == tf.uint8
    row_bytes = shape.num_elements() * spec.dtype.size
    return row_bytes / _FRAME_COMPRESSION if is_compressed else row_bytes
