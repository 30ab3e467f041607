"""Copies what a node writes from its host's folder to the command's, if those are not the same.

What is saved of the replay stays on its host: it may have gigabytes.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from apex_agents.runs.workdir import (
    ACTOR_STEPS_FILE,
    BEST_CHECKPOINT,
    CHECKPOINTS,
    LAST_CHECKPOINT,
    SUMMARY_FILE,
    VIDEOS,
)

# What nodes write besides their logs.
_PATTERNS = {
    "replay": (ACTOR_STEPS_FILE,),
    "learner": (f"{CHECKPOINTS}/learner-*[0-9]/*", LAST_CHECKPOINT, SUMMARY_FILE),
    "evaluator": (BEST_CHECKPOINT, f"{VIDEOS}/**/*"),
}
_LOGS = "logs/"  # Lines are appended to them.
_PARTIAL = ".partial"
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
      modified: when the file was; see `FileState`.
      offset: of the part, in bytes.
      content: of the part.
      is_last: whether the file is complete with it, for now.
    """

    path: str
    modified: int
    offset: int
    content: bytes
    is_last: bool


class NodeFiles:
    """What one node writes, in one copy of the run's folder.

    Attributes:
      folder: the copy.
      log: of the node's process.
    """

    def __init__(self, workdir: str, node: str):
        """Look for the files of a node, by its name, in a folder that need not be there."""
        self.folder = pathlib.Path(workdir)
        self.log = self.folder / "logs" / f"{node}.log"
        self._patterns = (f"{_LOGS}{node}.*", f"{_LOGS}{node}_*", *_PATTERNS.get(node, ()))

    def states(self) -> dict[str, FileState]:
        """Return the files by their paths in the folder, in the order in which they were written.

        A checkpoint is complete with the last of its files.
        """
        found = {}
        for pattern in self._patterns:
            with contextlib.suppress(OSError):  # Something was removed meanwhile; next time.
                for path in list(self.folder.glob(pattern)):
                    if path.suffix != _PARTIAL and path.is_file():
                        status = path.stat()
                        name = path.relative_to(self.folder).as_posix()
                        found[name] = FileState(status.st_mtime_ns, status.st_size)
        return dict(sorted(found.items(), key=lambda item: item[1].modified))

    def read_new(
        self, states: Mapping[str, FileState], known: Mapping[str, FileState]
    ) -> Iterator[Piece]:
        """Read what of the files is not known elsewhere, in the order in which it was written.

        Args:
          states: of the files; see `states`.
          known: their states as of the last time; see `after`.

        Yields:
          Pieces of at most 64 MB.
        """
        for name, state in states.items():
            if state == known.get(name):
                continue
            is_log = name.startswith(_LOGS)
            offset = _known_size(is_log, state, known.get(name))
            is_last = False
            with contextlib.suppress(OSError), (self.folder / name).open("rb") as file:
                file.seek(offset)
                while not is_last:
                    content = file.read(_MAX_BYTES)
                    is_last = is_log or offset + len(content) >= state.size or not content
                    if is_log:  # A torn row may be cut off later.
                        content = content[: content.rfind(b"\n") + 1]
                    if content or not offset or not is_log:
                        yield Piece(name, state.modified, offset, content, is_last)
                    offset += len(content)

    def write(self, piece: Piece) -> None:
        """Put a piece into its file, which is there when it is complete, or as it was before.

        Raises:
          OSError: it cannot be written.
        """
        path = self.folder / piece.path
        path.parent.mkdir(parents=True, exist_ok=True)
        appends = piece.offset and piece.path.startswith(_LOGS)
        target = path if appends else path.with_name(f"{path.name}{_PARTIAL}")
        with target.open("r+b" if piece.offset else "wb") as file:
            file.seek(piece.offset)
            file.write(piece.content)
            file.truncate()
        if piece.is_last:
            os.utime(target, ns=(piece.modified, piece.modified))
            target.replace(path)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, if they are there."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)


def take_some(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the first pieces, about as much as one may have."""
    taken: list[Piece] = []
    room = _MAX_BYTES
    for piece in pieces:
        taken.append(piece)
        room -= len(piece.content)
        if room <= 0:
            break
    return taken


def after(piece: Piece) -> FileState:
    """Return what is known of a file elsewhere when a piece of it has come there."""
    return FileState(piece.modified, piece.offset + len(piece.content))


def _known_size(is_log: bool, state: FileState, known: FileState | None) -> int:
    """Return how much of a file is known already: of a log all that was there the last time."""
    if known is None or state.size < known.size:
        return 0
    return known.size if is_log or state.modified == known.modified else 0
