"""Resources of the machine, or of the container, in which this process runs."""

import contextlib
import ctypes
import pathlib
from collections.abc import Iterator

import psutil
from rich.filesize import decimal

from apex_agents.replay.tables import DataFlow

_CGROUP_ROOT = pathlib.Path("/sys/fs/cgroup")
_CGROUPS_OF_THIS_PROCESS = pathlib.Path("/proc/self/cgroup")
# Names of the limit, of the memory in use, and, in `memory.stat`, of the part of it that the kernel
# reclaims when memory is needed; by cgroup version.
_CGROUP_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_CGROUP_V2 = ("memory.max", "memory.current", "inactive_file")

# Parameters of `mallopt`, from <malloc.h>, and their values in bytes: free memory at the end of a
# heap that is kept, size from which arrays have a mapping of their own (no more is allowed), and
# what is asked for in addition when a heap grows.
_MALLOPT = {-1: 2**30, -3: 2**25, -2: 2**20}

# Usable share of the free memory: other processes need some, and the estimate may be too low.
_USABLE = 0.8


def keep_freed_memory() -> None:
    """Let this process keep up to a gigabyte of the memory that it frees, for its next arrays.

    Those of an update or of a policy are freed and allocated again at once. What is returned to the
    kernel in between comes back page by page, each filled with zeros first.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's.
        for parameter, value in _MALLOPT.items():
            mallopt(parameter, value)


def available_memory() -> int:
    """Return the bytes of memory that the machine, or the cgroup of this process, has free."""
    memberships = ""
    with contextlib.suppress(OSError):  # A kernel may have no cgroups.
        memberships = _CGROUPS_OF_THIS_PROCESS.read_text()
    return min([psutil.virtual_memory().available, *free_in_cgroups(_CGROUP_ROOT, memberships)])


def memory_warning(flow: DataFlow, estimate: int, available: int) -> str | None:
    """Return a warning if `estimate` bytes do not fit into the `available` ones, else None.

    Args:
      flow: the table.
      estimate: bytes that it takes when it is full.
      available: bytes of free memory.
    """
    if estimate <= _USABLE * available:
        return None
    item_bytes = estimate / flow.max_size
    allowed = int(_USABLE * available / item_bytes)
    allowed -= allowed % 10 ** max(len(str(allowed)) - 2, 0)  # Rounded down to two digits.
    can_be_lower = allowed > flow.min_size * flow.replicas
    lower = f"lower {flow.max_size_field} to {allowed:,} or less, or " if can_be_lower else ""
    return (
        f"The replay will grow to about {decimal(estimate)} ({flow.max_size:,} items of about "
        f"{decimal(round(item_bytes))}), and this machine has {decimal(available)} of memory free: "
        f"{lower}use a machine with more memory."
    )


def free_in_cgroups(root: pathlib.Path, memberships: str) -> Iterator[int]:
    """Yield the free bytes in the cgroups of a process, and in their parents, that have a limit.

    Args:
      root: folder where cgroups are mounted; those of version 1 are in its subfolder `memory`.
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
        # In a container the path may be the one outside, while its own group is mounted as root.
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                with contextlib.suppress(OSError, ValueError):  # No such group, or 'max': no limit.
                    yield _free_in_cgroup(folder, *names)


def _free_in_cgroup(folder: pathlib.Path, limit: str, used: str, reclaimable: str) -> int:
    words = (folder / "memory.stat").read_text().split()
    cache = int(words[words.index(reclaimable) + 1])
    return max(int((folder / limit).read_text()) - int((folder / used).read_text()) + cache, 0)
