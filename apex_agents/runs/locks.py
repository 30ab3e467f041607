"""Files that one process holds, and who inherits them, until all of these have gone."""

import fcntl
import pathlib
import time
from typing import Any


def hold_lock(path: pathlib.Path, wait_seconds: float) -> Any:
    """Open a file that nobody else holds, and keep others from holding it.

    Args:
      path: of the file; it is made if it is not there.
      wait_seconds: how long to wait for somebody who holds it.

    Returns:
      The open file; held until this process, and all that inherit it, have closed it.

    Raises:
      BlockingIOError: somebody held it for all that time.
      OSError: it cannot be opened.
    """
    file = path.open("a")
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def is_held(path: pathlib.Path) -> bool:
    """Return whether some process of this machine holds a file."""
    try:
        with path.open() as file:
            # Held for a moment only: who wants to hold it just now waits longer than that.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
