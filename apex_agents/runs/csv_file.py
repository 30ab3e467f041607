"""A CSV logger whose rows are written as a whole, or wait in memory while the disk is full."""

import collections
import contextlib
import csv
import io
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from acme.utils import loggers

from apex_agents.runs.files import report_failure, report_success
from apex_agents.runs.folder import END_OF_ROWS

_END_OF_LINE = b"\r\n"


class CSVLogger(loggers.Logger):
    """Appends rows to a CSV file; the columns are those of the file or of the first row, sorted.

    Values for which a file has no column, such as those of an update that was changed before the
    run was resumed, are left out with a warning; those that a row lacks are NaN.
    An empty line ends the rows of an earlier process. Rows that cannot be written are kept and
    tried again with the next one. A truncated row, which a process that was killed left at the end
    of the file, is removed.
    """

    def __init__(
        self,
        path: pathlib.Path,
        more: Callable[[], Mapping[str, Any]] = dict,
        max_waiting_rows: int = 500,
    ):
        """Make the file, if it does not exist, and remove a truncated row.

        Args:
          path: path of the file.
          more: returns columns that each row gets beside its own.
          max_waiting_rows: number of rows that are kept while the disk is full, the newest ones;
            at a row every five seconds, 500 are those of 40 minutes.
        """
        self._path = path
        self._more = more
        self._columns: list[str] = []
        self._rows: collections.deque[bytes] = collections.deque(maxlen=max_waiting_rows)
        self._num_lost = 0
        self._is_separated = False
        self._flush()
        self._left_out: set[str] = set()
        with contextlib.suppress(OSError, ValueError, csv.Error), path.open(newline="") as file:
            self._columns = next(csv.reader(file), [])

    def write(self, data: Mapping[str, Any]) -> None:
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
        self._flush()

    def _warn_of_new(self, names: Set[str]) -> None:
        if new := names - self._left_out:
            self._left_out |= new
            logging.warning("%s has no column for %s.", self._path, ", ".join(sorted(new)))

    def close(self) -> None:
        self._flush()  # Writes the rows that wait, if there is room for them.

    def _flush(self) -> None:
        try:
            # Opened for each row: the file may have been removed to make room.
            with self._path.open("ab+", buffering=0) as file:
                _remove_truncated_row(file)
                if not self._is_separated:
                    _end_rows(file)
                    self._is_separated = True
                if self._columns and not file.seek(0, os.SEEK_END):
                    _append(file, _encode(self._columns))
                if self._rows:  # At once: a reader sees all rows of a histogram, or none.
                    _append(file, b"".join(self._rows))
                    self._rows.clear()
        except OSError as error:
            report_failure(self._path, error)
            return
        report_success(self._path)
        if self._num_lost:
            logging.warning("%s lacks %d rows: too many waited.", self._path, self._num_lost)
            self._num_lost = 0


def end_rows(path: pathlib.Path) -> None:
    """End the rows of a file whose process has ended by an empty line, unless they are ended."""
    with contextlib.suppress(OSError), path.open("ab+", buffering=0) as file:  # The disk is full.
        _remove_truncated_row(file)
        _end_rows(file)


def _end_rows(file: io.FileIO) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - len(END_OF_ROWS), 0))
    if size and file.read() != END_OF_ROWS:
        _append(file, _END_OF_LINE)


def _encode(values: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()


def _remove_truncated_row(file: io.FileIO) -> None:
    """Remove what follows the end of the last whole line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.readall().rfind(b"\n") + 1)


def _append(file: io.FileIO, row: bytes) -> None:
    """Write a whole row, or raise an OSError and leave the file as it was."""
    size = file.seek(0, os.SEEK_END)
    try:
        while row:
            row = row[file.write(row) :]
    except OSError:
        file.truncate(size)
        raise
