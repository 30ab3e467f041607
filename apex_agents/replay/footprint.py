"""How much memory a full replay takes, and whether this machine has that much.

Reverb's server holds, for every item, what it knows of it and, as long as an item refers to them,
chunks of rows. What each of them takes was measured with Reverb 0.14 (the growth of the server's
resident memory, as `benchmarks/replay_memory.py` measures it).
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np
import psutil
import tensorflow as tf

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.writers import rows_per_chunk

# Of an item, of each of its columns, and of a chunk, which holds rows of one column.
_ITEM_BYTES = 330
_COLUMN_BYTES = 300
_CHUNK_BYTES = 940
# Reverb compresses chunks: 84x84 frames of MsPacman to a 5th, of Pong to a 19th, of Battle Zone to
# a 7th. Floats are too different to count on it.
_FRAME_COMPRESSION = 7

# Of the free memory: other processes of the run need some, and the estimate is one.
_USABLE = 0.8

_CGROUP_ROOT = pathlib.Path("/sys/fs/cgroup")
_CGROUP_OF_THIS_PROCESS = pathlib.Path("/proc/self/cgroup")
# By version: names of the limit, of what is used, and, in `memory.stat`, of that part of it which
# the kernel gives up when memory is needed.
_CGROUP_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_CGROUP_V2 = ("memory.max", "memory.current", "inactive_file")


def estimate_replay_bytes(
    config: ReplayConfig, signature: Mapping[str, tf.TensorSpec], n_step: int
) -> int:
    """Estimate the memory that a full table takes.

      max_size * item_bytes + num_rows * row_bytes,   num_rows = max_size / replicas * stay

    When the oldest leave, their chunks do, stay = 1. Removal by priority takes items in random
    order, and a chunk goes with the last of the m items that refer to it, which is there for
    stay = 1 + 1/2 + ... + 1/m times as long as the average one (exponential lifetimes).

    Args:
      config: of the table.
      signature: of one of its items; see `transitions.item_signature`.
      n_step: longest transition, in steps.

    Returns:
      Bytes; within 30 % for packed rows. Frames of a game may compress twice as well.
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
    """Return the size of one row of a column, of which an item may have several."""
    shape = spec.shape.as_list()
    if name != "frames":
        return float(np.prod(shape) * spec.dtype.size)
    frame_bytes = float(np.prod(shape[1:]) * spec.dtype.size)
    return frame_bytes / _FRAME_COMPRESSION if spec.dtype == tf.uint8 else frame_bytes


def memory_warning(config: ReplayConfig, estimate: int, available: int) -> str | None:
    """Say that the replay will not fit, and what to do, or return None if it will.

    Args:
      config: of the table.
      estimate: bytes that the full replay takes.
      available: bytes that it can take.
    """
    if estimate <= _USABLE * available:
        return None
    item_bytes = estimate / config.max_size
    return (
        f"The replay will grow to about {format_bytes(estimate)} ({config.max_size:,} items of "
        f"about {format_bytes(item_bytes)}), and this machine has {format_bytes(available)} of "
        "memory free: lower "
        f"agent.replay.max_size to {_round_down(_USABLE * available / item_bytes):,} or less, or "
        "find a machine with more."
    )


def format_bytes(num_bytes: float) -> str:
    """Write a number of bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 1e3:.1f} KB"


def available_memory() -> int:
    """Return the bytes that this machine has free, or the cgroup (container) of this process."""
    memberships = ""
    with contextlib.suppress(OSError):  # There are no cgroups elsewhere than on Linux.
        memberships = _CGROUP_OF_THIS_PROCESS.read_text()
    in_cgroups = _free_in_cgroups(_CGROUP_ROOT, memberships)
    return min([psutil.virtual_memory().available, *in_cgroups])


def _free_in_cgroups(root: pathlib.Path, memberships: str) -> Iterator[int]:
    """Yield what is free in the cgroups of a process that have a limit, and in their parents.

    Args:
      root: where cgroups are mounted; version 2 right there, version 1 in `memory`.
      memberships: content of `/proc/<pid>/cgroup`, lines of `number:controllers:path`.
    """
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root, _CGROUP_V2
        elif "memory" in controllers.split(","):
            mount, names = root / "memory", _CGROUP_V1
        else:
            continue
        group = mount / path.lstrip("/")
        # In a container the path may be that outside of it, but its own group is mounted as root.
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                with contextlib.suppress(OSError, ValueError):  # No such group, or 'max': no limit.
                    yield _free_in_cgroup(folder, *names)


def _free_in_cgroup(
    folder: pathlib.Path, limit_name: str, used_name: str, reclaimable_name: str
) -> int:
    limit, used = (int((folder / name).read_text()) for name in (limit_name, used_name))
    words = (folder / "memory.stat").read_text().split()
    statistics = dict(zip(words[::2], words[1::2], strict=True))
    return max(limit - used + int(statistics.get(reclaimable_name, 0)), 0)


def _round_down(number: float) -> int:
    """Round to two digits."""
    digits = 10 ** max(len(str(int(number))) - 2, 0)
    return int(number // digits * digits)
