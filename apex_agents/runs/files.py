"""File locks that child processes inherit, atomic writes, and reports of I/O failures.

A run continues when its disk is full. Failures are reported through `logging`, which does not raise
when its own file is on that disk.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import psutil

# Errors of `flock` on a file system that has none.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

_failing: set[pathlib.Path] = set()


def hold_lock(
    path: pathlib.Path, wait_seconds: float, flock: Callable[[IO[str], int], None] = fcntl.flock
) -> IO[str]:
    """Lock a file against all other processes.

    On a file system without locks, such as Lustre mounted without `flock`, it is locked against
    the other processes of this user on this machine, with a warning.

    Args:
      path: path of the file, which is made if it does not exist.
      wait_seconds: seconds to wait for a process that holds the lock.
      flock: the system's lock, as `fcntl.flock`.

    Returns:
      The open file, which holds the lock until it is closed here and in all processes that inherit
      its descriptor.

    Raises:
      BlockingIOError: another process held the lock all that time.
      OSError: the file cannot be opened.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        file = path.open("a")
        try:
            has_locks = _lock(file, fcntl.LOCK_EX, flock)
        except BlockingIOError:
            file.close()
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
            continue
        if not has_locks:
            logging.warning(
                "%s is on a file system without locks; commands on other machines, or of other "
                "users, are not kept out.",
                path,
            )
        return file


def is_held(path: pathlib.Path, flock: Callable[[IO[str], int], None] = fcntl.flock) -> bool:
    """Return whether a process of this machine holds the lock of a file."""
    try:
        with path.open() as file:
            # This holds the lock for a moment; a process that wants it just then waits longer.
            _lock(file, fcntl.LOCK_SH, flock)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock(file: IO[str], kind: int, flock: Callable[[IO[str], int], None]) -> bool:
    """Lock an open file or raise a BlockingIOError; return whether its file system has locks.

    Where it has none, a file is locked while it is open for writing.
    """
    try:
        flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        if any(found != (os.getpid(), file.fileno()) for found in _find_writers(file.name)):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock") from error
        return False
    return True


def _find_writers(path: str) -> Iterator[tuple[int, int]]:
    """Yield the process ids and descriptors with which this user's processes write a file."""
    real = os.path.realpath(path)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # It has ended, or is another user's.
            opened = process.open_files()
            yield from ((process.pid, f.fd) for f in opened if f.path == real and f.mode != "r")


def replace_file(path: pathlib.Path, content: bytes | memoryview) -> None:
    """Write a file atomically: it has the new content or, after an OSError, the old one."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # Some file systems rename before they write.
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def try_to_replace_file(path: pathlib.Path, content: bytes | memoryview) -> bool:
    """Write a file atomically, report failures, and return whether it was written."""
    try:
        replace_file(path, content)
    except OSError as error:
        report_failure(path, error)
        return False
    report_success(path)
    return True


def write_json(path: pathlib.Path, value: Any) -> bool:
    """Write a JSON file atomically, report failures, and return whether it was written."""
    return try_to_replace_file(path, encode_json(value))


def encode_json(value: Any) -> bytes:
    """Return the content of a JSON file."""
    return json.dumps(value, indent=2).encode()


def report_failure(path: pathlib.Path, error: Exception) -> None:
    """Log a warning that a file, or a pattern of files, cannot be written, once in a row."""
    if path not in _failing:
        _failing.add(path)
        logging.warning("%s cannot be written, the run continues without it: %s", path, error)


def report_success(path: pathlib.Path) -> None:
    """Log that a file can be written, if the last attempt failed."""
    if path in _failing:
        _failing.remove(path)
        logging.info("%s can be written again.", path)
