"""Keeps the files of a node alike in two copies of the run's folder, on hosts without a common one.

The newest version of a file wins, so the clocks of the hosts have to agree by a second or so. What
is saved of the replay stays on its host: it may have gigabytes.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from apex_agents.running.workdir import (
    ACTOR_STEPS_FILE,
    BEST_CHECKPOINT,
    CHECKPOINTS,
    EVALUATIONS,
    LAST_CHECKPOINT,
    SUMMARY_FILE,
    VIDEOS,
)

# What nodes write besides their logs.
_PATTERNS = {
    "replay": (ACTOR_STEPS_FILE,),
    "learner": (f"{CHECKPOINTS}/learner-*[0-9]/*", LAST_CHECKPOINT, SUMMARY_FILE),
    "evaluator": (BEST_CHECKPOINT, f"{VIDEOS}/**/*", f"{EVALUATIONS}/**/*"),
}
_LOGS = "logs/"  # Lines are appended to them.
_MAX_BYTES = 64 << 20


class FileState(NamedTuple):
    """What tells one version of a file from another.

    Attributes:
      modified: when, in nanoseconds since the epoch.
      size: in bytes.
    """

    modified: int
    size: int


class Piece(NamedTuple):
    """A part of a file.

    Attributes:
      path: of the file, relative to the folder.
      modified: when the whole file was; see `FileState`.
      offset: of the part, in bytes.
      content: of the part; nothing follows it yet.
    """

    path: str
    modified: int
    offset: int
    content: bytes


class NodeFiles:
    """What one node writes, in one copy of the run's folder.

    Attributes:
      folder: the copy.
    """

    def __init__(self, workdir: str, node: str):
        """Look for the files of a node, by its name, in a folder that need not be there."""
        self.folder = pathlib.Path(workdir)
        self._patterns = (f"{_LOGS}{node}.*", f"{_LOGS}{node}_*", *_PATTERNS.get(node, ()))
        self._states: dict[str, FileState] = {}

    def states(self) -> Mapping[str, FileState]:
        """Return the files by their paths in the folder.

        Those that were removed since they were last seen remain: nobody is to bring them back.
        """
        for pattern in self._patterns:
            for path in self.folder.glob(pattern):
                with contextlib.suppress(OSError):  # Removed meanwhile.
                    status = path.stat()
                    if path.is_file() and path.suffix != ".partial":
                        name = path.relative_to(self.folder).as_posix()
                        self._states[name] = FileState(status.st_mtime_ns, status.st_size)
        return self._states

    def read_newer(self, known: Mapping[str, FileState]) -> list[Piece]:
        """Return what of the files another copy lacks, or the first 64 MB of that.

        Args:
          known: states of the other copy's files. What it has of a log is not sent again.
        """
        pieces: list[Piece] = []
        room = _MAX_BYTES
        for name, state in self.states().items():
            other = known.get(name)
            if room <= 0 or (other is not None and state <= other):
                continue
            offset = other.size if other is not None and _goes_on(name, state, other) else 0
            with contextlib.suppress(OSError), (self.folder / name).open("rb") as file:
                file.seek(offset)
                content = file.read(room)
                if name.startswith(_LOGS):  # A torn row may be cut off later.
                    content = content[: content.rfind(b"\n") + 1]
                if content or other is None:
                    pieces.append(Piece(name, state.modified, offset, content))
                room -= len(content)
        return pieces

    def write(self, pieces: Iterable[Piece]) -> None:
        """Put pieces into their files; the files get their time.

        Raises:
          OSError: a file cannot be written.
        """
        for piece in pieces:
            path = self.folder / piece.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if piece.offset else "wb") as file:
                file.seek(piece.offset)
                file.write(piece.content)
                file.truncate()
            os.utime(path, ns=(piece.modified, piece.modified))


def _goes_on(name: str, state: FileState, known: FileState) -> bool:
    """Return whether what is known of a file is its beginning."""
    is_same = name.startswith(_LOGS) or state.modified == known.modified
    return is_same and state.size > known.size
