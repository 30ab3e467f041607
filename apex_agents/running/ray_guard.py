"""What looks after one node's process on its host of a cluster, for the supervisor far away.

A guard is an actor of Ray. When it ends, with its host, with the command or by Ray, its node's
process sees the end of its channel and leaves.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ray

from apex_agents.running.mirror import FileState, NodeFiles, Piece
from apex_agents.running.node_process import Exit, LocalProcess, NodeCommand, entry_argv
from apex_agents.running.ports import reserve_port
from apex_agents.running.workdir import RUN_ID_FILE, make_folders

# What a node and its guard share with the others of the run.
_DISTRIBUTIONS = ("dm-reverb", "tensorflow", "dm-acme", "dm-launchpad", "numpy")


class Site(NamedTuple):
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


class Look(NamedTuple):
    """How a process is.

    Attributes:
      num_restarts: of the process that this is about; -1 if the guard has never started one.
      pid: of the process.
      ended: see `NodeProcess.poll`.
      said: see `NodeProcess.said`.
      pieces: what is new in the node's files, if that was asked for.
    """

    num_restarts: int = -1
    pid: int | None = None
    ended: Exit | None = None
    said: bytes = b""
    pieces: Sequence[Piece] = ()


class NodeGuard:
    """Starts, watches and ends the processes of one node; whatever it is asked, it may be again."""

    def __init__(self, name: str, workdir: str):
        """Begin without a process.

        Args:
          name: of the node.
          workdir: the run's folder, here.
        """
        self._files = NodeFiles(workdir, name)
        self._ports: list[socket.socket] = []
        self._job: int | None = None
        self._process: LocalProcess | None = None
        self._num_restarts = -1

    def site(self, run_id: str) -> Site:
        """Say where this is; the command's folder holds the run of this id."""
        found = ""
        with contextlib.suppress(OSError):
            found = (self._files.folder / RUN_ID_FILE).read_text()
        return Site(
            ray.get_runtime_context().get_node_id(),
            ray.util.get_node_ip_address(),
            versions(),
            found == run_id,
        )

    def reserve_port(self) -> int:
        """Take a port of this host for as long as the guard lives."""
        self._ports.append(reserve_port())
        return self._ports[-1].getsockname()[1]

    def start(self, command: NodeCommand, job: bytes, index: int, num_restarts: int) -> None:
        """Start a process unless this one has been started.

        Args:
          command: without `argv` and `fds`.
          job: the functions of all nodes; see `node_process.entry_argv`.
          index: of this node's.
          num_restarts: how often the node was started again.

        Raises:
          OSError: it cannot be started.
        """
        if num_restarts == self._num_restarts:
            return
        self.kill()
        if self._job is None:
            self._job = os.memfd_create("job")
            with open(self._job, "wb", closefd=False) as file:
                file.write(job)
        make_folders(self._files.folder)
        argv = entry_argv(self._job, index)
        self._process = LocalProcess(command._replace(argv=argv, fds=[self._job]), num_restarts)
        self._num_restarts = num_restarts

    def look(self, known: Mapping[str, FileState] | None) -> Look:
        """Say how the process is.

        Args:
          known: if the command's folder is another than this host's, what it has of the node.
        """
        process = self._process
        if process is None:
            return Look()
        ended, said = process.poll(), process.said()
        pieces = () if known is None else self._files.read_newer(known)
        return Look(self._num_restarts, process.pid, ended, said, pieces)

    def files(self) -> Mapping[str, FileState]:
        """Return what this host has of the node."""
        return self._files.states()

    def provide(self, pieces: Sequence[Piece]) -> None:
        """Put what this host lacks into its copy of the run's folder."""
        self._files.write(pieces)

    def ask_to_leave(self) -> None:
        """Send SIGTERM to the process."""
        if self._process is not None:
            self._process.ask_to_leave()

    def kill(self) -> None:
        """End the process and what it has started."""
        if self._process is not None:
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
