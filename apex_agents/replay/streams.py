"""Streams of rows into the replay server, and the items that refer to them."""

from typing import Any

import reverb


def open_stream(
    client: reverb.Client, columns: tuple[str, ...], chunk_length: int
) -> reverb.TrajectoryWriter:
    """Open a stream of rows, `chunk_length` of which share a chunk and are remembered."""
    stream = client.trajectory_writer(num_keep_alive_refs=chunk_length)
    for column in columns:
        stream.configure((column,), num_keep_alive_refs=chunk_length, max_chunk_length=chunk_length)
    return stream


def create_items(
    stream: reverb.TrajectoryWriter,
    table: str,
    item: dict[str, Any],
    priority: float,
    replicas: int,
) -> None:
    """Add an item `replicas` times; `item` refers to rows of the stream's history."""
    for _ in range(replicas):
        stream.create_item(table, priority, item)
