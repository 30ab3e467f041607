"""Tells of what cannot be written: once when it begins, once when it is over.

A run goes on when its disk is full. What it tells goes through `logging`, which does not raise when
its own file is on that disk.
"""

import logging
import pathlib

_failing: set[pathlib.Path] = set()


def report_failure(path: pathlib.Path, error: Exception) -> None:
    """Warn that something could not be written, unless it could not the last time either.

    Args:
      path: stands for all that is tried again and again under one name.
      error: says why.
    """
    if path not in _failing:
        _failing.add(path)
        logging.warning("%s cannot be written, the run goes on without: %s", path, error)


def report_success(path: pathlib.Path) -> None:
    """Say that something could be written, if it could not the last time."""
    if path in _failing:
        _failing.remove(path)
        logging.info("%s can be written again.", path)
