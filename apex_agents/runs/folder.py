"""Reads what a run writes into its folder, while it goes on or afterwards.

Nothing here needs TensorFlow, or a connection to the run: whoever can read the folder can look.
"""

import csv
import itertools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from apex_agents.runs.workdir import CONFIG_FILE, NODES_FILE, SUMMARY_FILE, is_locked

Row = dict[str, float | str]

# A piece of a file that is too long to be read as a whole: some hundred rows.
_PIECE_BYTES = 2**15


class RunFolder:
    """The folder of one run.

    Attributes:
      path: the folder.
      config: every setting of the run, as nested dicts.
    """

    def __init__(self, workdir: str | pathlib.Path):
        """Look into a folder.

        Raises:
          ValueError: it does not hold a run that can be read.
        """
        self.path = pathlib.Path(workdir).expanduser().absolute()
        if not self.path.is_dir():
            raise ValueError(f"{workdir} is no folder; name the work directory of a run.")
        config = _read_json(self.path / CONFIG_FILE)
        if not isinstance(config, dict):
            raise ValueError(f"{workdir} holds no run: it has no {CONFIG_FILE} that can be read.")
        self.config: dict[str, Any] = config

    def summary(self) -> dict[str, Any] | None:
        """Return why and when the run ended; None while it goes on, or if it was killed."""
        return _read_json(self.path / SUMMARY_FILE)

    def settings(self, *sections: str) -> dict[str, Any]:
        """Return a section of the config, such as `("agent", "replay")`; {} if it has none."""
        found: Any = self.config
        for section in sections:
            found = found.get(section) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def nodes(self) -> dict[str, Any]:
        """Return what the launcher says of each node, by its name."""
        return _read_json(self.path / NODES_FILE) or {}

    def is_running(self) -> bool:
        """Return whether some process of the run is alive on this machine."""
        return is_locked(self.path)

    def logs(self) -> list[str]:
        """Return the names of the CSV files that `read_columns` and `RowReader` can read."""
        names = {path.name.split(".")[0] for path in self.path.glob("logs/*.csv")}
        return sorted(names)

    def read_columns(self, name: str, max_bytes: int | None = None) -> dict[str, np.ndarray]:
        """Read the rows of `logs/<name>.csv`.

        Rows of files that were put aside because their columns had changed (`<name>.1.csv`, ...)
        come first; a column that they lack is NaN, or '' for text, there.

        Args:
          name: of the file.
          max_bytes: of a larger file only pieces are read that are as large together, the last one
            at its end and the others spread evenly over it; None reads everything.

        Returns:
          Columns `[N]` of equal length by name, float64 or text; none if there is no row.
        """
        aside = map(self.log_path, (f"{name}.{number}" for number in itertools.count(1)))
        paths = [*itertools.takewhile(pathlib.Path.exists, aside), self.log_path(name)]
        tables = [table for path in paths if (table := _read_table(path, max_bytes))]
        names = dict.fromkeys(column for table in tables for column in table)
        return {column: _join([table.get(column) for table in tables], tables) for column in names}

    def log_path(self, name: str) -> pathlib.Path:
        """Return where the CSV file of this name is."""
        return self.path / "logs" / f"{name}.csv"


class RowReader:
    """Reads the rows that are appended to one CSV file."""

    def __init__(self, path: pathlib.Path):
        """Remember the file, which need not exist yet."""
        self._path = path
        self._inode = -1
        self._offset = 0
        self._header: list[str] = []

    def read(self) -> list[Row]:
        """Return the rows written since the last call; a row that is torn waits for its end."""
        try:
            with self._path.open("rb") as file:
                self._start_anew_if_replaced(file)
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        text = text[: text.rfind(b"\n") + 1]
        self._offset += len(text)
        lines = list(csv.reader(text.decode(errors="replace").splitlines()))
        if lines and not self._header:
            self._header = lines.pop(0)
        return [
            {name: _parse(value) for name, value in zip(self._header, line, strict=True)}
            for line in lines
            if len(line) == len(self._header)
        ]

    def _start_anew_if_replaced(self, file: BinaryIO) -> None:
        """Forget the file of the last call if this is another one, with columns of its own."""
        status = os.fstat(file.fileno())
        if status.st_ino != self._inode or status.st_size < self._offset:
            self._inode, self._offset, self._header = status.st_ino, 0, []


def _parse(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def _read_table(path: pathlib.Path, max_bytes: int | None) -> dict[str, np.ndarray]:
    """Read the columns of one file; none if it has no row."""
    try:
        with path.open("rb") as file:
            header, text = file.readline(), _read_rows(file, max_bytes)
    except FileNotFoundError:
        return {}
    lines = list(csv.reader((header + text).decode(errors="replace").splitlines()))
    rows = [line for line in lines[1:] if len(line) == len(lines[0])]
    columns = zip(lines[0], zip(*rows, strict=True), strict=True) if rows else ()
    return {name: _make_column(values) for name, values in columns}


def _read_rows(file: BinaryIO, max_bytes: int | None) -> bytes:
    """Read whole rows, from here on, up to a number of bytes."""
    start, end = file.tell(), os.fstat(file.fileno()).st_size
    if max_bytes is None or end - start <= max_bytes:
        text = file.read()
        return text[: text.rfind(b"\n") + 1]
    num_pieces = max(max_bytes // _PIECE_BYTES, 1)
    rows = []
    for offset in np.linspace(end - _PIECE_BYTES, start, num_pieces)[::-1]:
        file.seek(int(offset))
        piece = file.read(_PIECE_BYTES)
        rows.append(piece[piece.find(b"\n") + 1 : piece.rfind(b"\n") + 1])
    return b"".join(rows)


def _make_column(values: Sequence[str]) -> np.ndarray:
    try:
        return np.array([float(value) for value in values])
    except ValueError:
        return np.array(values)


def _join(parts: list[np.ndarray | None], tables: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Join the parts of a column, one per table; a table may lack it."""
    is_text = any(part is not None and part.dtype.kind == "U" for part in parts)
    lengths = [len(next(iter(table.values()))) for table in tables]
    missing = "" if is_text else np.nan
    return np.concatenate(
        [
            np.full(length, missing) if part is None else part
            for part, length in zip(parts, lengths, strict=True)
        ]
    )


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
