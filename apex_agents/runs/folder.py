"""Reads what a run writes into its folder, while it runs or afterwards.

Nothing here needs TensorFlow or a connection to the run: read access to the folder is enough.
"""

import csv
import json
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from apex_agents.runs.config_file import CONFIG_FILE, read_values
from apex_agents.runs.files import is_held
from apex_agents.runs.workdir import AGENT_FILE, LOCK_FILE, LOGS, NODES_FILE, SUMMARY_FILE

Row = dict[str, float | str]

# What the rows of a process in a CSV file end with when those of another one follow.
END_OF_ROWS = b"\n\r\n"

# The pieces of a file that is too long to be read as a whole: at most some hundred rows, and as
# many pieces as show how the values went.
_MAX_PIECE_BYTES, _MIN_PIECE_BYTES = 2**15, 2**10
_MIN_PIECES = 16


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
        return _read_json(self.path / SUMMARY_FILE)

    def settings(self, *sections: str) -> dict[str, Any]:
        """Return a section of the config, such as `("agent", "replay")`; {} if there is none."""
        found: Any = self.config
        for section in sections:
            found = found.get(section) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def nodes(self) -> dict[str, Any]:
        """Return the status of each node's process by the node's name, as the launcher sees it."""
        return _read_json(self.path / NODES_FILE) or {}

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
        """Read the rows of `logs/<name>.csv`.

        Args:
          name: name of the file, without `.csv`.
          max_bytes: number of bytes to read of a larger file, in pieces that are spread evenly over
            it, the last one at its end; None reads all of it.

        Returns:
          Columns `[N]` of equal length by name, float64 or text; none if there is no row. An empty
          line between two rows, where the run was stopped, is a row of NaN.
        """
        try:
            with self.log_path(name).open("rb") as file:
                header, text = file.readline(), _read_rows(file, max_bytes)
        except FileNotFoundError:
            return {}
        names, *lines = _parse_lines(header + text.strip()) or [[]]
        rows = [line or ["nan"] * len(names) for line in lines]
        rows = [row for row in rows if len(row) == len(names)]
        columns = zip(names, zip(*rows, strict=True), strict=True) if rows else ()
        return {column: _make_column(values) for column, values in columns}


def find_runs(folder: str | pathlib.Path) -> list[RunFolder]:
    """Return the run in a folder, or, if it holds none, those up to three levels of folders below.

    Those that cannot be read, such as runs of earlier versions, are left out with a warning, and
    agents that were handed on are no runs.

    Args:
      folder: folder of a run, of a sweep, or of several of these.

    Raises:
      ValueError: there is no run that can be read.
    """
    path = pathlib.Path(os.path.expanduser(folder)).absolute()
    if not (path / CONFIG_FILE).exists() and path.is_dir():
        patterns = ["*/" * depth + CONFIG_FILE for depth in (1, 2, 3)]
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


class RowReader:
    """Reads the rows that are appended to one CSV file; from the first one if it is replaced."""

    def __init__(self, path: pathlib.Path):
        self._path = path  # The file need not exist yet.
        self._inode = -1
        self._offset = 0
        self._header: list[str] = []

    def read(self) -> list[Row]:
        """Return the rows written since the last call, except one that is not complete yet.

        An empty row is where a process of the run ended, and the rows of another one begin.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset, self._header = status.st_ino, 0, []
                file.seek(self._offset)
                text = _whole_lines(file.read())
        except FileNotFoundError:
            return []
        lines = _parse_lines(text)
        self._offset += len(text)
        if lines and not self._header:
            self._header = lines.pop(0)
        return [
            {name: _parse_value(value) for name, value in zip(self._header, line, strict=False)}
            for line in lines
            if len(line) in (0, len(self._header))
        ]


def _read_rows(file: BinaryIO, max_bytes: int | None) -> bytes:
    """Read whole rows that follow the file's position; see `RunFolder.read_columns`."""
    start, end = file.tell(), os.fstat(file.fileno()).st_size
    if max_bytes is None or end - start <= max_bytes:
        return _whole_lines(file.read())
    piece_bytes = min(max(max_bytes // _MIN_PIECES, _MIN_PIECE_BYTES), _MAX_PIECE_BYTES, max_bytes)
    offsets = np.linspace(end - piece_bytes, start, max_bytes // piece_bytes, dtype=int)[::-1]
    rows, done = b"", start
    for offset in offsets.tolist():
        file.seek(offset - 1)  # If that is the end of a line, no part of one comes first.
        piece = file.read(piece_bytes + 1)
        skipped = piece.find(b"\n") + 1
        first, piece = offset - 1 + skipped, _whole_lines(piece[skipped:])
        if _has_end_of_rows(file, done - 1, first):
            rows += END_OF_ROWS[1:]  # After the end of a line.
        rows, done = rows + piece, first + len(piece)
    return rows


def _has_end_of_rows(file: BinaryIO, start: int, end: int) -> bool:
    file.seek(start)
    before = b""
    while text := file.read(min(end - start, _MAX_PIECE_BYTES)):
        if END_OF_ROWS in before + text:
            return True
        before, start = text[-len(END_OF_ROWS) :], start + len(text)
    return False


def _whole_lines(text: bytes) -> bytes:
    """Return what comes before the end of the last whole line."""
    return text[: text.rfind(b"\n") + 1]


def _parse_lines(text: bytes) -> list[list[str]]:
    # After a power failure a file may have zeros, for which the reader would raise.
    return list(csv.reader(text.replace(b"\0", b"").decode(errors="replace").splitlines()))


def _parse_value(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def _make_column(values: Sequence[str]) -> np.ndarray:
    try:
        return np.array(values, float)
    except ValueError:
        return np.array(values)


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
