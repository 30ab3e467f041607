"""File locks that child processes inherit, atomic writes, and reports of I/O failures.

A run continues when its disk is full. Failures are reported through `logging`, which does not raise
when its own file is on that disk.
"""

import contextlib
import fcntl
import json
import logging
import pathlib
import time
from typing import IO, Any

_failing: set[pathlib.Path] = set()


def hold_lock(path: pathlib.Path, wait_seconds: float) -> IO[str]:
    """Lock a file against all other processes.

    Args:
      path: path of the file, which is made if it does not exist.
      wait_seconds: seconds to wait for a process that holds the lock.

    Returns:
      The open file. The lock is released when this process, and all processes that inherit the
      file's descriptor, have closed it.

    Raises:
      BlockingIOError: another process held the lock all that time.
      OSError: the file cannot be opened.
    """
    deadline = time.monotonic() + wait_seconds
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("a"))
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.pop_all()  # Leaves the file open.
                return file
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)


def is_held(path: pathlib.Path) -> bool:
    """Return whether a process of this machine holds the lock of a file."""
    try:
        with path.open() as file:
            # This holds the lock for a moment; a process that wants it just then waits longer.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def replace_file(path: pathlib.Path, content: bytes | memoryview) -> None:
    """Write a file atomically: it has the new content or, after an OSError, the old one."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def try_to_replace_file(path: pathlib.Path, content: bytes | memoryview) -> bool:
    """Write a file atomically, as `replace_file` does, and report failures instead of raising.

    Returns:
      Whether the file was written.
    """
    try:
        replace_file(path, content)
    except OSError as error:
        report_failure(path, error)
        return False
    report_success(path)
    return True


def write_json(path: pathlib.Path, value: Any) -> bool:
    """Write a JSON file atomically; report failures and return as `try_to_replace_file` does."""
    return try_to_replace_file(path, encode_json(value))


def encode_json(value: Any) -> bytes:
    """Return the content of a JSON file."""
    return json.dumps(value, indent=2).encode()


def report_failure(path: pathlib.Path, error: Exception) -> None:
    """Log a warning that writes fail, unless the last write failed, too.

    Args:
      path: name of what is written again and again: a path, or a pattern of paths.
      error: reason of the failure.
    """
    if path not in _failing:
        _failing.add(path)
        logging.warning("%s cannot be written, the run continues without it: %s", path, error)


def report_success(path: pathlib.Path) -> None:
    """Log that writes work again, if the last one failed."""
    if path in _failing:
        _failing.remove(path)
        logging.info("%s can be written again.", path)
