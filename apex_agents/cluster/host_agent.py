"""Runs the processes of one node on a host of a cluster, for the supervisor on another host.

A host agent is an actor of Ray. When it ends, with its host, with the command or by Ray, its node's
process sees its channel close and exits.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import platform
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import ray

from apex_agents.cluster.file_sync import Change, FileState, NodeFiles, take_some
from apex_agents.nodes.process import (
    Exit,
    LocalNodeProcess,
    NodeCommand,
    NodeProcess,
    entry_argv,
    reserve_port,
)
from apex_agents.runs.files import hold_lock
from apex_agents.runs.workdir import make_folders
from apex_agents.waits import Wait

# What the nodes of a run exchange depends on the versions of these.
_DISTRIBUTIONS = ("dm-reverb", "tensorflow", "dm-acme", "dm-launchpad", "numpy")


class HostInfo(NamedTuple):
    """The host of a host agent."""

    node_id: str  # Ray's id of the host.
    ip: str  # The address under which other hosts reach it.
    versions: Mapping[str, str]  # See `versions`.
    shares_workdir: bool  # Whether the run's folder there is the command's own.


class ProcessReport(NamedTuple):
    """State of a node's process and news of its files."""

    num_restarts: int = -1  # Of the node before this process; -1 if there is no process.
    pid: int | None = None
    exit: Exit | None = None  # None while it lives.
    messages: bytes = b""  # All since its start.
    wait: Wait | None = None  # What it waits for.
    changes: Sequence[Change] = ()
    removed: Collection[str] = ()  # Paths of known files that were removed.


class HostAgent:
    """Starts, watches and ends the processes of one node; every call may be repeated."""

    def __init__(
        self,
        name: str,
        workdir: str,
        start: Callable[[NodeCommand, int], NodeProcess] = LocalNodeProcess,
        lock_wait_seconds: float = 60.0,
    ):
        """Begin without a process.

        Args:
          name: name of the node.
          workdir: folder of the run on this host.
          start: starts a process of the node, given the number of its restarts.
          lock_wait_seconds: seconds to wait for the exit of a process of the node that an earlier
            host agent has started; a learner saves a checkpoint before it exits.
        """
        self._name = name
        self._files = NodeFiles(workdir, name)
        self._start_process = start
        self._lock_wait_seconds = lock_wait_seconds
        self._port: socket.socket | None = None
        self._lock: Any = None
        self._job: int | None = None
        self._process: NodeProcess | None = None
        self._num_restarts = -1

    def host_info(self, mark: str) -> HostInfo:
        """Describe this host; the command's folder holds a file with the name of the mark."""
        return HostInfo(
            ray.get_runtime_context().get_node_id(),
            ray.util.get_node_ip_address(),
            versions(),
            (self._files.folder / mark).exists(),
        )

    def reserve_address(self) -> str:
        """Reserve a port for as long as the host agent lives; return 'HOST:PORT' for gRPC."""
        self._port = self._port or reserve_port()
        host, port = ray.util.get_node_ip_address(), self._port.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def prepare(self, keep: Collection[str] | None) -> dict[str, FileState] | None:
        """Prepare the run's folder for the node's first process here.

        Args:
          keep: paths of the node's files to keep, relative to the folder; None keeps all.

        Returns:
          States of these files; None after the first process, whose files are newer than the
          command's.

        Raises:
          OSError: the folder cannot be written.
          TimeoutError: a process that an earlier host agent has started does not exit.
        """
        if self._process is not None:
            return None
        make_folders(self._files.folder)
        path = self._files.folder / f".lock-{self._name}"
        try:
            self._lock = self._lock or hold_lock(path, self._lock_wait_seconds)
        except BlockingIOError as error:
            raise TimeoutError("the last process of the node does not exit") from error
        if keep is not None:
            self._files.remove_all_but(keep)
        return self._files.states()

    def write(self, change: Change) -> None:
        """Write a change of the node's files; an OSError says that this is impossible."""
        self._files.write(change)

    def start(self, command: NodeCommand, job: bytes, index: int, num_restarts: int) -> None:
        """Start a process, unless the one with this number of restarts has been started already.

        Args:
          command: command without `argv` and `fds`.
          job: functions of all nodes, serialised.
          index: position of this node's function among them.
          num_restarts: number of restarts of the node.

        Raises:
          OSError: it cannot be started.
          RuntimeError: Ray has replaced the host agent that was prepared by this one.
        """
        if num_restarts == self._num_restarts:
            return
        if self._lock is None:
            raise RuntimeError("its host was lost meanwhile")
        if self._job is None:
            self._job = os.memfd_create("job")
            pathlib.Path(f"/proc/self/fd/{self._job}").write_bytes(job)
        self.kill(self._num_restarts)
        argv = entry_argv(self._job, index)
        fds = [self._job, self._lock.fileno()]  # The lock is held while the process lives.
        self._process = self._start_process(command._replace(argv=argv, fds=fds), num_restarts)
        self._num_restarts = num_restarts

    def report(self, known: Mapping[str, FileState] | None) -> ProcessReport:
        """Report on the process, and on files unless `known`, their states there, is None."""
        process = self._process
        if process is None:
            return ProcessReport()
        # The process comes first: once it has ended, its files are complete.
        state = (process.pid, process.poll(), process.messages(), process.wait())
        report = ProcessReport(self._num_restarts, *state)
        if known is None:
            return report
        states = self._files.states()
        removed = [path for path in known if path not in states]
        return report._replace(changes=take_some(self._files.changes(known)), removed=removed)

    def send(self, addresses: str, num_restarts: int) -> None:
        """Tell the process with this number of restarts the addresses of the replays."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.send(addresses)

    def suspend(self, num_restarts: int) -> None:
        """Stop the process with this number of restarts and what it has started."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.suspend()

    def resume(self, num_restarts: int) -> None:
        """Continue what `suspend` has stopped."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.resume()

    def terminate(self, num_restarts: int) -> None:
        """Send SIGTERM to the process with this number of restarts."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.terminate()

    def abort(self, num_restarts: int) -> None:
        """End the process with this number of restarts; see `NodeProcess.abort`."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.abort()

    def kill(self, num_restarts: int) -> None:
        """Kill the process with this number of restarts and what it has started."""
        if self._process is not None and num_restarts == self._num_restarts:
            self._process.kill()


def versions() -> dict[str, str]:
    """Return versions of what has to be the same on all hosts of a run, by name."""
    code = hashlib.sha256()
    folder = pathlib.Path(__file__).resolve().parents[1]
    for path in sorted(folder.rglob("*.py")):
        code.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return {
        "Python": platform.python_version(),
        "apex_agents code": code.hexdigest()[:12],
        **{name: importlib.metadata.version(name) for name in _DISTRIBUTIONS},
    }
