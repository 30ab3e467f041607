"""What looks after one node's process on its host of a cluster, for the supervisor far away.

A guard is an actor of Ray. When it ends, with its host, with the command or by Ray, its node's
process sees the end of its channel and leaves.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import platform
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ray

from apex_agents.cluster.file_sync import FileState, NodeFiles, Piece, after, take_some
from apex_agents.nodes.ports import reserve_port
from apex_agents.nodes.process import Exit, LocalNodeProcess, NodeCommand, entry_argv
from apex_agents.runs.files import hold_lock
from apex_agents.runs.workdir import make_folders

# What a node and its guard share with the others of the run.
_DISTRIBUTIONS = ("dm-reverb", "tensorflow", "dm-acme", "dm-launchpad", "numpy")
# A learner saves a checkpoint before it leaves.
_LOCK_WAIT_SECONDS = 60.0


class HostInfo(NamedTuple):
    """Where a guard is.

    Attributes:
      node_id: of its host, as Ray has it.
      ip: address under which other hosts reach it.
      versions: of what has to be the same on all hosts, by name.
      shares_workdir: whether the run's folder there is the command's own.
    """

    node_id: str
    ip: str
    versions: Mapping[str, str]
    shares_workdir: bool


class ProcessReport(NamedTuple):
    """How a process is.

    Attributes:
      num_restarts: of the process that this is about; -1 if the guard has never started one.
      pid: of the process.
      ended: see `NodeProcess.poll`.
      said: see `NodeProcess.said`.
      pieces: what is new in the node's files, if that was asked for.
      number: of the look; 0 if it tells nothing.
    """

    num_restarts: int = -1
    pid: int | None = None
    ended: Exit | None = None
    messages: bytes = b""
    pieces: Sequence[Piece] = ()
    number: int = 0


class NodeGuard:
    """Starts, watches and ends the processes of one node; whatever it is asked, it may be again."""

    def __init__(self, name: str, workdir: str):
        """Begin without a process.

        Args:
          name: of the node.
          workdir: the run's folder, here.
        """
        self._name = name
        self._files = NodeFiles(workdir, name)
        self._ports: list[socket.socket] = []
        self._lock: Any = None
        self._job: int | None = None
        self._process: LocalNodeProcess | None = None
        self._num_restarts = -1
        self._copied: dict[str, FileState] = {}
        self._on_its_way: dict[str, FileState] = {}
        self._num_looks = 0

    def site(self, mark: str) -> HostInfo:
        """Say where this is; the command's folder holds a file with the name of the mark."""
        return HostInfo(
            ray.get_runtime_context().get_node_id(),
            ray.util.get_node_ip_address(),
            versions(),
            (self._files.folder / mark).exists(),
        )

    def reserve_port(self) -> int:
        """Take a port of this host for as long as the guard lives."""
        self._ports.append(reserve_port())
        return self._ports[-1].getsockname()[1]

    def prepare(self) -> dict[str, FileState] | None:
        """Make the run's folder ready for the node's first process here.

        Returns:
          What is there of the node, None if this is not the first.

        Raises:
          OSError: the folder cannot be written.
          TimeoutError: a process of the node, of a guard before this one, does not leave.
        """
        if self._process is not None:
            return None
        make_folders(self._files.folder)
        path = self._files.folder / f".lock-{self._name}"
        try:
            self._lock = self._lock or hold_lock(path, _LOCK_WAIT_SECONDS)
        except BlockingIOError as error:
            raise TimeoutError("the process before it does not leave") from error
        return self._files.states()

    def provide(self, piece: Piece) -> None:
        """Put something into the node's files."""
        self._files.write(piece)

    def remove(self, names: Iterable[str]) -> None:
        """Remove some of the node's files."""
        self._files.remove(names)

    def start(self, command: NodeCommand, job: bytes, index: int, num_restarts: int) -> None:
        """Start a process unless this one has been started.

        Args:
          command: without `argv` and `fds`.
          job: the functions of all nodes; see `node_process.entry_argv`.
          index: of this node's.
          num_restarts: how often the node was started again.

        Raises:
          OSError: it cannot be started.
          RuntimeError: the guard that was prepared was another one.
        """
        if num_restarts == self._num_restarts:
            return
        if self._lock is None:
            raise RuntimeError("its host was lost meanwhile")
        if self._process is None:
            self._copied = self._files.states()
        if self._job is None:
            self._job = os.memfd_create("job")
            with open(self._job, "wb", closefd=False) as file:
                file.write(job)
        self.kill(self._num_restarts)
        argv = entry_argv(self._job, index)
        fds = [self._job, self._lock.fileno()]  # The lock is held while the process lives.
        self._process = LocalNodeProcess(command._replace(argv=argv, fds=fds), num_restarts)
        self._num_restarts = num_restarts

    def look(self, last_taken: int, wants_files: bool) -> ProcessReport:
        """Say how the process is.

        Args:
          last_taken: number of the last look that has arrived; what another one brought is lost.
          wants_files: whether to send what is new in the node's files.
        """
        process = self._process
        if process is None:
            return ProcessReport()
        ended, messages = process.poll(), process.messages()
        if last_taken == self._num_looks:
            self._copied |= self._on_its_way
        self._num_looks += 1
        pieces: list[Piece] = []
        if wants_files:
            states = self._files.states()
            self._copied = {name: copied for name, copied in self._copied.items() if name in states}
            pieces = take_some(self._files.read_new(states, self._copied))
        self._on_its_way = {piece.path: after(piece) for piece in pieces}
        return ProcessReport(
            self._num_restarts, process.pid, ended, messages, pieces, self._num_looks
        )

    def ask_to_leave(self, num_restarts: int) -> None:
        """Send SIGTERM to a process."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.ask_to_leave()

    def kill(self, num_restarts: int) -> None:
        """End a process and what it has started."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.kill()


def versions() -> dict[str, str]:
    """Return versions of what all hosts of a run need to have alike."""
    code = hashlib.sha256()
    folder = pathlib.Path(__file__).resolve().parents[1]
    for path in sorted(folder.rglob("*.py")):
        code.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return {
        "Python": platform.python_version(),
        "apex_agents code": code.hexdigest()[:12],
        **{name: importlib.metadata.version(name) for name in _DISTRIBUTIONS},
    }
