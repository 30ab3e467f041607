"""The folder of one run: what is in it, and under which names."""

import collections
import dataclasses
import fcntl
import json
import pathlib
import time
from typing import Any

import numpy as np

CONFIG_FILE = "config.json"
SUMMARY_FILE = "summary.json"
FAILURE_FILE = "failure.json"
CHECKPOINTS = "checkpoints"
BEST_CHECKPOINT = "checkpoints/best.npz"
LAST_CHECKPOINT = "checkpoints/last.npz"
EVALUATOR_CSV = "logs/evaluator.csv"

# Sections of the config that have to stay as they are when a run goes on.
_FIXED_SECTIONS = ("agent", "environment")

_LOCK_FILE = ".lock"
_locks: list[Any] = []  # Open for as long as the process lives.


def open_workdir(path: str | None, config_name: str, config: Any) -> str:
    """Make the folder of a new run, or take up that of a run that goes on; write the config.

    Args:
      path: the folder; None makes a new one in `runs/`.
      config_name: goes into the name of that new folder.
      config: the dataclass to write to `config.json`.

    Returns:
      The folder's absolute path.

    Raises:
      ValueError: the folder cannot be written, another command runs in it, or it holds a run of
        another agent or environment.
    """
    name = f"{config_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    workdir = pathlib.Path(path or pathlib.Path("runs", name))
    values = json.loads(json.dumps(dataclasses.asdict(config)))
    if not _is_text(str(workdir)):
        raise ValueError(f"--workdir={workdir} has to be UTF-8 without NUL bytes.")
    try:
        workdir = workdir.expanduser().absolute()
        if (workdir / CONFIG_FILE).exists():
            _check_same_run(workdir, values)
        for folder in ("logs", CHECKPOINTS):
            (workdir / folder).mkdir(parents=True, exist_ok=True)
        _lock(workdir)
        (workdir / CONFIG_FILE).write_text(json.dumps(values, indent=2))
        for file in (SUMMARY_FILE, FAILURE_FILE):  # Of the end before.
            (workdir / file).unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"--workdir={workdir} cannot be written: {error.strerror}.") from error
    except RuntimeError as error:  # A ~ that stands for nobody's home.
        raise ValueError(f"--workdir={workdir} cannot be found: {error}") from error
    return str(workdir)


def _is_text(path: str) -> bool:
    """Return whether TensorFlow can open a path; Python opens some more."""
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:
        return False


def _lock(workdir: pathlib.Path) -> None:
    """Keep others out of the folder for as long as this process lives."""
    file = (workdir / _LOCK_FILE).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(f"--workdir={workdir} is in use: a run goes on in it.") from error
    _locks.append(file)


def _check_same_run(workdir: pathlib.Path, values: dict[str, Any]) -> None:
    """Raise a ValueError if the folder's run is not one that these settings can go on with."""
    try:
        before = json.loads((workdir / CONFIG_FILE).read_text())
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise ValueError(f"--workdir={workdir}: {CONFIG_FILE} cannot be read; name another folder.")
    for section in _FIXED_SECTIONS:
        difference = _first_difference(before.get(section), values.get(section), section)
        if difference is not None:
            field, old, new = difference
            raise ValueError(
                f"--workdir={workdir} holds a run with {field} {old!r}, not {new!r}; only "
                "fields of run can change when it goes on."
            )


def _first_difference(old: Any, new: Any, path: str) -> tuple[str, Any, Any] | None:
    """Return the path of the first field that differs and its two values, None if none does."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return (path, old, new) if old != new else None
    for name in {**old, **new}:
        difference = _first_difference(old.get(name), new.get(name), f"{path}.{name}")
        if difference is not None:
            return difference
    return None


def save_variables(path: pathlib.Path, variables: dict[str, list[np.ndarray]]) -> None:
    """Write arrays to an .npz file that is complete or not there at all.

    Args:
      path: the file.
      variables: arrays by name; array i of name n is stored as `n/i`.
    """
    arrays = {f"{name}/{i}": a for name, group in variables.items() for i, a in enumerate(group)}
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path)


def load_variables(path: pathlib.Path) -> dict[str, list[np.ndarray]]:
    """Read what `save_variables` wrote; nothing in the file is executed."""
    with np.load(path, allow_pickle=False) as arrays:
        counts = collections.Counter(key.rpartition("/")[0] for key in arrays)
        return {
            name: [arrays[f"{name}/{i}"] for i in range(count)] for name, count in counts.items()
        }
