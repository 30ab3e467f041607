"""Copies files of a node between its host's folder of the run and the command's, if they are two.

What a node writes comes to the command's folder, with which a later host of the node begins. A
saved replay stays on its host: it may have gigabytes.
"""

import contextlib
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from apex_agents.metrics.columns import LEARNER, histogram_file
from apex_agents.runs.files import remove, report_failure, report_success
from apex_agents.runs.workdir import (
    BEST_CHECKPOINT,
    CHECKPOINT_PROGRESS,
    CHECKPOINTS,
    LAST_CHECKPOINT,
    PARAMETER_SERVER,
    SUMMARY_FILE,
    VIDEOS,
    actor_steps_file,
    parse_replay_name,
)

_LOGS = "logs/"  # In these files, lines are appended; all others are replaced as a whole.
# The files that nodes write besides the logs with their names.
_OF_LEARNING = (f"{CHECKPOINTS}/learner-*[0-9]/*", LAST_CHECKPOINT, SUMMARY_FILE)
_PATTERNS = {
    LEARNER: _OF_LEARNING,
    PARAMETER_SERVER: (
        f"{_LOGS}{LEARNER}.csv",
        f"{_LOGS}{histogram_file(LEARNER)}.csv",
        *_OF_LEARNING,
    ),
    "evaluator": (BEST_CHECKPOINT, f"{VIDEOS}/**/*"),
}
_PARTIAL = ".partial"
_MAX_BYTES = 64 << 20


class FileState(NamedTuple):
    """The state of a file, which distinguishes its versions."""

    modified: int  # Time of its last change, in nanoseconds since the epoch.
    size: int  # In bytes.


class Change(NamedTuple):
    """New content of a file: all of it, or what was appended to a log."""

    path: str  # Relative to the run's folder.
    modified: int  # See `FileState`.
    offset: int  # Position of the content in the file, in bytes.
    content: bytes

    @property
    def state(self) -> FileState:
        """State of the file once it has this content."""
        return FileState(self.modified, self.offset + len(self.content))


class NodeFiles:
    """The files of one node in one folder of the run, which need not exist."""

    def __init__(self, workdir: str, node: str):
        self.folder = pathlib.Path(workdir)
        others: tuple[str, ...] = (f"{_LOGS}{node}_*", *_PATTERNS.get(node, ()))
        if (number := parse_replay_name(node)) is not None:
            others = (actor_steps_file(number),)
        self._patterns = (f"{_LOGS}{node}.*", *others)

    def states(self) -> dict[str, FileState]:
        """Return the states of the files by their paths, in the order of their last changes."""
        found = {}
        for pattern in self._patterns:
            with contextlib.suppress(OSError):  # A file was removed meanwhile.
                for path in list(self.folder.glob(pattern)):
                    if path.suffix != _PARTIAL and path.is_file():
                        status = path.stat()
                        relative = path.relative_to(self.folder).as_posix()
                        found[relative] = FileState(status.st_mtime_ns, status.st_size)
        # A checkpoint is complete with its progress; the clock of a folder has coarse steps.
        last = f"/{CHECKPOINT_PROGRESS}"
        return dict(sorted(found.items(), key=lambda f: (f[1].modified, f[0].endswith(last))))

    def changes(self, known: Mapping[str, FileState]) -> Iterator[Change]:
        """Read what the other folder, whose states are known, lacks; the oldest change first."""
        for path, state in self.states().items():
            if state != known.get(path):
                with contextlib.suppress(OSError):  # The file was removed meanwhile.
                    change = self._read(path, state, known.get(path))
                    if change.state != known.get(path):  # A log may have no whole new line.
                        yield change

    def write(self, change: Change) -> None:
        """Write a change, so that the file has its old content or the new one at any time."""
        path = self.folder / change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path if change.offset else path.with_name(f"{path.name}{_PARTIAL}")
        with target.open("r+b" if change.offset else "wb") as file:
            file.seek(change.offset)
            file.write(change.content)
            file.truncate()
        os.utime(target, ns=(change.modified, change.modified))
        target.replace(path)

    def remove_all_but(self, paths: Collection[str]) -> None:
        """Remove the node's files except some, by their paths relative to the folder."""
        for path in self.states():
            if path not in paths:
                (self.folder / path).unlink(missing_ok=True)

    def _read(self, path: str, state: FileState, known: FileState | None) -> Change:
        """Read a file, or only the new lines of a log; a log that has shrunk is read as a whole."""
        if not path.startswith(_LOGS):
            return Change(path, state.modified, 0, (self.folder / path).read_bytes())
        offset = known.size if known is not None and known.size <= state.size else 0
        with (self.folder / path).open("rb") as file:
            file.seek(offset)
            content = file.read()
        # The process, or the next one, may yet remove an incomplete line.
        return Change(path, state.modified, offset, content[: content.rfind(b"\n") + 1])


class FileSync:
    """The command's files of one node, kept in line with those on the node's host."""

    def __init__(self, workdir: str, node: str):
        self._files = NodeFiles(workdir, node)
        self._log = self._files.folder / _LOGS / f"{node}.log"
        self.known: dict[str, FileState] = {}  # Files that are the same on the host.

    def paths(self) -> list[str]:
        """Return the paths of the files, relative to the folder."""
        return list(self._files.states())

    def outgoing(self, there: Mapping[str, FileState]) -> Iterator[Change]:
        """Yield the changes that a host lacks, given the states of its files."""
        here = self._files.states()
        self.known = {path: state for path, state in there.items() if state == here.get(path)}
        for change in self._files.changes(self.known):
            yield change
            self.known[change.path] = change.state

    def receive(self, changes: Iterable[Change], removed: Iterable[str]) -> bool:
        """Write the changes of files on the host, and forget, but keep, those removed there.

        The summary is removed here, too: the learner has been restarted, and the run continues.

        Returns:
          Whether everything could be written; what could not is wanted again.
        """
        for path in removed:
            self.known.pop(path, None)
            if path == SUMMARY_FILE:
                remove(self._files.folder / path)
        for change in changes:
            try:
                self._files.write(change)
            except OSError as error:
                # Request the same log lines again; earlier lines were received.
                if not (change.offset and (self._files.folder / change.path).exists()):
                    self.known.pop(change.path, None)
                report_failure(self._log, error)
                return False
            self.known[change.path] = change.state
            report_success(self._log)
        return True


def take_some(changes: Iterable[Change], max_bytes: int = _MAX_BYTES) -> list[Change]:
    """Return the first changes, up to the one with which their content reaches a size."""
    taken: list[Change] = []
    for change in changes:
        taken.append(change)
        max_bytes -= len(change.content)
        if max_bytes <= 0:
            break
    return taken
