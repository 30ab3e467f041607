"""Reads the files in the folder of a run, which may be active or over.

Nothing here needs TensorFlow or a connection to the run: read access to the folder is enough.
"""

import logging
import os
import pathlib
from typing import Any

import numpy as np

from apex_agents.runs.config_file import CONFIG_FILE, read_values
from apex_agents.runs.csv_file import read_columns
from apex_agents.runs.files import is_held, read_json
from apex_agents.runs.workdir import AGENT_FILE, LOCK_FILE, LOGS, NODES_FILE, SUMMARY_FILE


class RunFolder:
    """The folder of one run, at the absolute path `path`, with the values of its config."""

    def __init__(self, workdir: str | pathlib.Path):
        """Read the config of the run in a folder.

        Raises:
          ValueError: the folder does not hold a run that can be read.
        """
        self.path = pathlib.Path(os.path.expanduser(workdir)).absolute()
        self.config = read_values(self.path)

    def summary(self) -> dict[str, Any] | None:
        """Return why and when the run ended; None while it runs, or if it was killed."""
        return read_json(self.path / SUMMARY_FILE)

    def settings(self, *sections: str) -> dict[str, Any]:
        """Return a section of the config, such as `("agent", "replay")`; {} if there is none."""
        found: Any = self.config
        for section in sections:
            found = found.get(section) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def nodes(self) -> dict[str, Any]:
        """Return the status of each node's process by the node's name, as the launcher sees it."""
        return read_json(self.path / NODES_FILE) or {}

    def is_running(self) -> bool:
        """Return whether a process of the run is alive on this machine."""
        return is_held(self.path / LOCK_FILE)

    def logs(self) -> list[str]:
        """Return the names of the CSV files, without `.csv`."""
        return sorted(path.stem for path in self.path.glob(f"{LOGS}/*.csv"))

    def log_path(self, name: str) -> pathlib.Path:
        """Return the path of a CSV file."""
        return self.path / LOGS / f"{name}.csv"

    def read_columns(self, name: str, max_bytes: int | None = None) -> dict[str, np.ndarray]:
        """Read the rows of `logs/<name>.csv`; see `csv_file.read_columns`."""
        return read_columns(self.log_path(name), max_bytes)


def find_runs(folder: str | pathlib.Path) -> list[RunFolder]:
    """Return the run in a folder, or, if it holds none, those up to four levels of folders below.

    Those that cannot be read, such as runs of earlier versions, are left out with a warning, and
    agents that were handed on are no runs.

    Args:
      folder: folder of a run, of a study, or of several of these.

    Raises:
      ValueError: there is no run that can be read.
    """
    path = pathlib.Path(os.path.expanduser(folder)).absolute()
    if not (path / CONFIG_FILE).exists() and path.is_dir():
        patterns = ["*/" * depth + CONFIG_FILE for depth in (1, 2, 3, 4)]
        found = sorted(file.parent for pattern in patterns for file in path.glob(pattern))
        runs, errors = [], []
        for run in (run for run in found if not (run / AGENT_FILE).exists()):
            try:
                runs.append(RunFolder(run))
            except ValueError as error:
                errors.append(error)
        if errors and not runs:
            raise errors[0]
        for problem in errors:
            logging.warning("A run is left out: %s", problem)
        if runs:
            return runs
    return [RunFolder(path)]
