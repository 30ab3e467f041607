"""The folder of one run: what is in it, and under which names."""

import collections
import dataclasses
import json
import pathlib
import time
from typing import Any

import numpy as np

CONFIG_FILE = "config.json"
SUMMARY_FILE = "summary.json"
FAILURE_FILE = "failure.json"
BEST_CHECKPOINT = "checkpoints/best.npz"
LAST_CHECKPOINT = "checkpoints/last.npz"


def make_workdir(path: str | None, config_name: str, config: Any) -> str:
    """Make the folder of a new run and write its resolved config.

    Args:
      path: the folder; None makes a new one in `runs/`.
      config_name: goes into the name of that new folder.
      config: the dataclass to write to `config.json`.

    Returns:
      The folder's absolute path.

    Raises:
      ValueError: the folder cannot be written, or already holds a run.
    """
    name = f"{config_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    workdir = pathlib.Path(path or pathlib.Path("runs", name)).expanduser().absolute()
    if (workdir / CONFIG_FILE).exists():
        raise ValueError(f"--workdir={workdir} already holds a run; name an empty or new folder.")
    try:
        for folder in ("logs", "checkpoints"):
            (workdir / folder).mkdir(parents=True, exist_ok=True)
        (workdir / CONFIG_FILE).write_text(json.dumps(dataclasses.asdict(config), indent=2))
    except OSError as error:
        raise ValueError(f"--workdir={workdir} cannot be written: {error.strerror}.") from error
    return str(workdir)


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
