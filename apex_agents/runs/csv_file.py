"""A CSV file that a full disk does not tear: its rows are there as a whole, or wait for room."""

import collections
import io
import itertools
import logging
import os
import pathlib

from apex_agents.runs.io_failures import report_failure, report_success

# At a row every few seconds, those of the better part of an hour.
_MAX_WAITING_ROWS = 500


class CSVFile:
    """What Acme's CSV logger takes for a text file that was opened for appending.

    Rows that cannot be written are kept, and tried again with the next one. What a process that was
    killed wrote of a row is cut off. If the file has other columns than the rows, it is renamed to
    `<name>.1.csv` (`.2`, ...), and a new one begins.

    Attributes:
      mode: 'a'.
      name: path of the file.
    """

    mode = "a"

    def __init__(self, path: pathlib.Path):
        """Make the file, if there is none, and cut off a torn row."""
        self.name = str(path)
        self._path = path
        self._header = b""
        self._rows: collections.deque[bytes] = collections.deque()
        self._num_lost = 0
        self.flush()

    def tell(self) -> int:
        """Return 0: Acme's logger then begins with a header, which is compared to the file's."""
        return 0

    def write(self, row: str) -> None:
        """Keep a row for `flush`; the first one is the header."""
        if not self._header:
            self._header = row.encode()
            return
        if len(self._rows) == _MAX_WAITING_ROWS:
            self._rows.popleft()
            self._num_lost += 1
        self._rows.append(row.encode())

    def flush(self) -> None:
        """Write the rows that were kept, as many as there is room for; never raise an OSError."""
        try:
            self._append_rows()
        except OSError as error:
            report_failure(self._path, error)
            return
        report_success(self._path)
        if self._num_lost:
            logging.warning("%s lacks %d rows: too many waited.", self._path, self._num_lost)
            self._num_lost = 0

    def _append_rows(self) -> None:
        # Opened anew each time: whoever makes room may have removed it.
        with self._path.open("ab+", buffering=0) as file:
            _cut_torn_row(file)
            file.seek(0)
            beginning = file.read(len(self._header))
        if beginning not in (b"", self._header):
            self._path.rename(self._unused_path())
        with self._path.open("ab", buffering=0) as file:
            if not file.tell():
                _append(file, self._header)
            while self._rows:
                _append(file, self._rows[0])
                self._rows.popleft()

    def _unused_path(self) -> pathlib.Path:
        paths = (self._path.with_suffix(f".{number}.csv") for number in itertools.count(1))
        return next(path for path in paths if not path.exists())


def _cut_torn_row(file: io.FileIO) -> None:
    """Cut off what follows the last line's end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.readall().rfind(b"\n") + 1)


def _append(file: io.FileIO, row: bytes) -> None:
    """Write a whole row, or raise an OSError and leave the file as it was."""
    size = file.tell()
    try:
        while row:
            row = row[file.write(row) :]
    except OSError:
        file.truncate(size)
        raise
