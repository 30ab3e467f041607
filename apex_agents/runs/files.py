"""Files of a run: atomic writes, a full disk, damaged JSON, and locks that child processes inherit.

What happens on a full disk is decided here: the run continues without the file, which keeps its
old content, and says so once. Failures are reported through `logging`, which does not raise when
its own file is on that disk.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import IO, Any

# Errors of `flock` on a file system that has none.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
# This folder is in memory, so that it has locks on every Linux.
_LOCKS = pathlib.Path("/dev/shm")

_FLock = Callable[[IO[str], int], None]

_failing: set[pathlib.Path] = set()


def try_to_write(
    path: pathlib.Path,
    write: Callable[[], object],
    errors: tuple[type[Exception], ...] = (OSError,),
) -> bool:
    """Write something without which the run continues, and report when that fails.

    Args:
      path: path of the file, or a pattern of files; its failures are one message in a row.
      write: function that writes it.
      errors: exceptions that mean that it could not be written.

    Returns:
      Whether it was written.
    """
    try:
        write()
    except errors as error:
        report_failure(path, error)
        return False
    report_success(path)
    return True


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


def write_json(path: pathlib.Path, value: Any) -> bool:
    """Write a JSON file atomically, report failures, and return whether it was written."""
    return try_to_write(path, lambda: replace_file(path, encode_json(value)))


def encode_json(value: Any) -> bytes:
    """Return the content of a JSON file."""
    return json.dumps(value, indent=2).encode()


def read_json(path: pathlib.Path) -> Any:
    """Return the value in a JSON file; None if the file is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None


def remove(path: pathlib.Path) -> None:
    """Remove a file or a folder if it exists and can be removed."""
    shutil.rmtree(path, ignore_errors=True)  # Leaves a file.
    with contextlib.suppress(OSError):
        path.unlink()


def hold_lock(path: pathlib.Path, wait_seconds: float, flock: _FLock = fcntl.flock) -> IO[str]:
    """Lock a file against all other processes.

    On a file system without locks, such as Lustre mounted without `flock`, it is locked against
    the other processes of this user on this machine, with a warning.

    Args:
      path: path of the file, which is made if it does not exist.
      wait_seconds: seconds to wait for a process that holds the lock.
      flock: the system's lock, as `fcntl.flock`.

    Returns:
      The open file that holds the lock until it is closed here and in all processes that inherit
      its descriptor.

    Raises:
      BlockingIOError: another process held the lock all that time.
      OSError: the file cannot be opened.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            file = _lock(path, "a", fcntl.LOCK_EX, flock)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
    if file.name != str(path):
        logging.warning(
            "%s is on a file system without locks; commands on other machines, or of other "
            "users, are not kept out.",
            path,
        )
    return file


def is_held(path: pathlib.Path, flock: _FLock = fcntl.flock) -> bool:
    """Return whether a process of this machine holds the lock of a file."""
    try:
        # This holds the lock for a moment; a process that wants it just then waits longer.
        _lock(path, "r", fcntl.LOCK_SH, flock).close()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock(path: pathlib.Path, mode: str, kind: int, flock: _FLock) -> IO[str]:
    """Open a file and lock it, or the one that stands for it where there are no locks."""
    file = path.open(mode)
    try:
        flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno not in _NO_LOCKS or path.parent == _LOCKS:
            raise
        name = hashlib.sha256(f"{os.getuid()} {path.resolve()}".encode()).hexdigest()[:16]
        return _lock(_LOCKS / f"apex_agents-{name}.lock", mode, kind, flock)
    return file
