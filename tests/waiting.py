"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

# Far more than anything takes on a quiet machine: tests also pass beside other work.
TIMEOUT_SECONDS = 120.0


def wait_for(condition: Callable[[], Any], describe: Callable[[], Any] = str) -> None:
    """Return once a condition holds.

    Raises:
      AssertionError: it does not within `TIMEOUT_SECONDS`; with what `describe` returns.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether there is a process of this number that has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Clock:
    """A clock that is set by hand, in seconds."""

    def __init__(self, now: float = 100.0):
        self.now = now

    def __call__(self) -> float:
        return self.now
