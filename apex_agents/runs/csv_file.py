"""CSV files with the rows of a run's nodes: a logger that loses no row, and readers.

Rows are written as a whole, or wait in memory while the disk is full. An empty line ends the rows
of a process; those of another one, for the same node, may follow.
"""

import collections
import csv
import io
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from apex_agents.runs.files import try_to_write

Row = dict[str, float | str]

_END_OF_LINE = b"\r\n"
_END_OF_ROWS = b"\n" + _END_OF_LINE  # The last row's end, and the empty line.

# Pieces of a file with too many rows: at most some hundred rows each, and enough of them to show
# all of the run.
_MAX_PIECE_BYTES, _MIN_PIECE_BYTES = 2**15, 2**10
_MIN_PIECES = 16


class CSVLogger:
    """Appends rows to a CSV file; the columns are those of the file or of the first row, sorted.

    Values for which a file has no column, such as metrics of an update that was changed before the
    run was resumed, are left out with a warning; those that a row lacks are NaN. Rows that cannot
    be written are kept and tried again with the next one. A truncated row, which a process that was
    killed left at the end of the file, is removed.
    """

    def __init__(
        self,
        path: pathlib.Path,
        more: Callable[[], Mapping[str, Any]] = dict,
        max_waiting_rows: int = 500,
    ):
        """Make the file, if it does not exist, and end the rows of an earlier process.

        Args:
          path: path of the file.
          more: function that returns further columns, which each row gets.
          max_waiting_rows: number of rows that are kept while the disk is full, the newest ones;
            at a row every five seconds, 500 are those of 40 minutes.
        """
        self._path = path
        self._more = more
        self._columns: list[str] = []
        self._left_out: set[str] = set()
        self._rows: collections.deque[bytes] = collections.deque(maxlen=max_waiting_rows)
        self._num_lost = 0
        self._is_separated = False
        self.close()

    def write(self, data: Mapping[str, Any]) -> None:
        """Write a row."""
        self.write_rows([data])

    def write_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write several rows at once."""
        more = self._more()
        for row in rows:
            values = {**row, **more}
            self._columns = self._columns or sorted(values)
            self._warn_of_new(values.keys() - {*self._columns})
            self._num_lost += len(self._rows) == self._rows.maxlen
            self._rows.append(_encode(values.get(column, "nan") for column in self._columns))
        self.close()

    def close(self) -> None:
        """Write the rows that wait, if there is room for them."""
        if try_to_write(self._path, self._append_rows) and self._num_lost:
            logging.warning("%s lacks %d rows: too many waited.", self._path, self._num_lost)
            self._num_lost = 0

    def _warn_of_new(self, names: Set[str]) -> None:
        if new := names - self._left_out:
            self._left_out |= new
            logging.warning("%s has no column for %s.", self._path, ", ".join(sorted(new)))

    def _append_rows(self) -> None:
        # Opened for each row: the file may have been removed to make room.
        with self._path.open("ab+", buffering=0) as file:
            _remove_truncated_row(file)
            if not self._is_separated:
                file.seek(0)
                self._columns = self._columns or next(iter(_parse_lines(file.readline())), [])
                _end_rows(file)
                self._is_separated = True
            if self._columns and not file.seek(0, os.SEEK_END):
                _append(file, _encode(self._columns))
            if self._rows:  # Written at once: a reader sees all rows of a histogram, or none.
                _append(file, b"".join(self._rows))
                self._rows.clear()


def end_rows(path: pathlib.Path) -> None:
    """End the rows of a file whose process has ended by an empty line, unless they are ended."""

    def end() -> None:
        with path.open("ab+", buffering=0) as file:
            _remove_truncated_row(file)
            _end_rows(file)

    try_to_write(path, end)


def _remove_truncated_row(file: io.FileIO) -> None:
    """Remove the bytes after the last whole line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(len(_whole_lines(file.readall())))


def _end_rows(file: io.FileIO) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - len(_END_OF_ROWS), 0))
    if size and file.read() != _END_OF_ROWS:
        _append(file, _END_OF_LINE)


def _append(file: io.FileIO, row: bytes) -> None:
    """Write a whole row, or raise an OSError and leave the file as it was."""
    size = file.seek(0, os.SEEK_END)
    try:
        while row:
            row = row[file.write(row) :]
    except OSError:
        file.truncate(size)
        raise


def _encode(values: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()


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
        except OSError:  # It may be readable the next time.
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


def read_columns(path: pathlib.Path, max_bytes: int | None = None) -> dict[str, np.ndarray]:
    """Read the rows of a CSV file.

    Args:
      path: path of the file.
      max_bytes: bytes of a larger file that are kept, in pieces that are spread evenly over it, the
        last one at its end; None keeps all of it.

    Returns:
      Columns `[N]` of equal length by name, float64 or text; none if there is no row. An empty line
      between two rows, where the run was stopped, is a row of NaN.
    """
    try:
        header, newline, text = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return {}
    text = _whole_lines(text)
    if max_bytes is not None and len(text) > max_bytes:
        text = _choose_pieces(text, max_bytes)
    names, *lines = _parse_lines(header + newline + text.strip()) or [[]]
    rows = [line or ["nan"] * len(names) for line in lines]
    rows = [row for row in rows if len(row) == len(names)]
    columns = zip(names, zip(*rows, strict=True), strict=True) if rows else ()
    return {column: _make_column(values) for column, values in columns}


def _choose_pieces(text: bytes, max_bytes: int) -> bytes:
    """Return some of the rows; see `read_columns`."""
    piece_bytes = min(max(max_bytes // _MIN_PIECES, _MIN_PIECE_BYTES), _MAX_PIECE_BYTES, max_bytes)
    offsets = np.linspace(len(text) - piece_bytes, 0, max_bytes // piece_bytes, dtype=int)[::-1]
    pieces, end = [], 0
    for offset in offsets.tolist():
        start = text.find(b"\n", offset - 1) + 1 if offset else 0  # The next whole row.
        if text.find(_END_OF_ROWS, max(end - 1, 0), start) >= 0:
            pieces.append(_END_OF_LINE)
        end = max(text.rfind(b"\n", start, offset + piece_bytes) + 1, start)
        pieces.append(text[start:end])
    return b"".join(pieces)


def _whole_lines(text: bytes) -> bytes:
    """Return the bytes up to the end of the last whole line."""
    return text[: text.rfind(b"\n") + 1]


def _parse_lines(text: bytes) -> list[list[str]]:
    """Return the values of each line, without lines that are damaged beyond reading."""
    # After a power failure a file may have zeros, for which the reader would raise.
    lines = text.replace(b"\0", b"").decode(errors="replace").splitlines()
    rows = (line for line in lines if len(line) < csv.field_size_limit())
    return list(csv.reader(rows, quoting=csv.QUOTE_NONE))  # A stray quote opens no long value.


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
