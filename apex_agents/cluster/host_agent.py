"""The processes of a node on a host of a cluster, at both ends: there, and at the supervisor.

A host agent is an actor of Ray. When it ends, with its host, with the command or by Ray, its node's
process sees its channel close and exits.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError, RayError

from apex_agents.cluster.file_sync import Change, FileState, FileSync, NodeFiles, take_some
from apex_agents.nodes.process import (
    REPLAYS,
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

_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 10.0  # Until what could not be written is fetched again.


class HostInfo(NamedTuple):
    """The host of a host agent."""

    node_id: str  # Ray's id of the host.
    ip: str  # The address under which other hosts reach it.
    versions: Mapping[str, str]  # See `versions`.
    shares_workdir: bool  # Whether the run's folder there is the command's own.


class ProcessReport(NamedTuple):
    """State of a node's process and news of its files."""

    num_restarts: int = -1  # Restarts of the node before this process; -1: there is none.
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
        self.ask(self._num_restarts, "kill")
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

    def ask(self, num_restarts: int, method: str, *arguments: Any) -> None:
        """Call a method (see `NodeProcess`) of the process with this number of restarts."""
        if self._process is not None and num_restarts == self._num_restarts:
            getattr(self._process, method)(*arguments)


class RemoteNodeProcess:
    """A process that a host agent runs; see `NodeProcess`."""

    def __init__(self, agent: Any, files: FileSync, num_restarts: int):
        """Describe a process that an agent, an actor of Ray, is about to start."""
        self._num_restarts = num_restarts
        self.host_info: HostInfo | None = None  # None until the process was started.
        self.pid: int | None = None
        self.host = ""
        self._agent = agent
        self._files = files
        self._addresses = ""  # The replays' addresses that the process knows.
        self._exit: Exit | None = None
        self._messages = b""
        self._wait: Wait | None = None
        self._report: Any = None  # The one that was asked for last.
        self._fetch_at = 0.0  # In the time of `time.monotonic`.

    def start(self, command: NodeCommand, job: Any, index: int, host_info: HostInfo) -> None:
        """Start it once its host has the node's files; see `HostAgent.start`.

        Raises:
          RayError: the host agent was lost, or could not start the process.
        """
        keep = None if host_info.shares_workdir else self._files.paths()
        there = ray.get(self._agent.prepare.remote(keep))
        if there is not None and keep is not None:
            for change in self._files.outgoing(there):
                ray.get(self._agent.write.remote(change))
        if self._exit is not None:  # The run was stopped meanwhile.
            return
        ray.get(self._agent.start.remote(command, job, index, self._num_restarts))
        self._addresses = command.env[REPLAYS]
        self.host = living_hosts().get(host_info.node_id, host_info.ip)
        self.host_info = host_info
        if self._exit is not None:
            self.kill()

    def end(self, ended: Exit) -> None:
        """Note how it ended, unless that is known."""
        self._exit = self._exit or ended

    def check(self, hosts: Collection[str]) -> bool:
        """Take news of the process that have arrived, and ask for more.

        Args:
          hosts: Ray's ids of the hosts that are alive.

        Returns:
          Whether new files have arrived.
        """
        if self.host_info is None or self._exit is not None:
            return False
        report = self._receive_report(fetches=not self.host_info.shares_workdir)
        if report is not None and report.num_restarts == self._num_restarts:
            return self._take(report)
        is_there = self.host_info.node_id in hosts
        if report is not None or not is_there:  # The host agent is gone, or is a new one.
            lost = f"was lost with {'a worker of Ray on' if is_there else 'its host'} {self.host}"
            self.end(Exit(lost, from_outside=True))
        return False

    def poll(self) -> Exit | None:
        return self._exit

    def messages(self) -> bytes:
        return self._messages

    def wait(self) -> Wait | None:
        return self._wait

    def send(self, addresses: str) -> None:
        if self.host_info is not None and addresses != self._addresses:
            self._addresses = addresses
            self._ask("send", addresses)

    def suspend(self) -> None:
        self._await(self._ask("suspend"))

    def resume(self) -> None:
        self._await(self._ask("resume"))

    def terminate(self) -> None:
        if self.host_info is None:
            self.end(Exit("was stopped before it was started", from_outside=True))
        else:
            self._ask("terminate")

    def abort(self) -> None:
        self._await(self._ask("abort"))

    def kill(self) -> None:
        self._await(self._ask("kill"))
        self.end(Exit("was killed", from_outside=True))

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._agent.ask.remote(self._num_restarts, method, *arguments)

    def _await(self, asked: Any) -> None:
        """Wait until the host agent has done what it was asked for, if there is a process."""
        if self.host_info is not None and self._exit is None:
            # A host agent whose host was just lost does not answer, and has no process.
            with contextlib.suppress(RayError):
                ray.get(asked, timeout=_ANSWER_SECONDS)

    def _receive_report(self, fetches: bool) -> ProcessReport | None:
        """Return the report that was asked for, if it has arrived, or ask for one."""
        if self._report is None:
            fetches = fetches and time.monotonic() >= self._fetch_at
            self._report = self._agent.report.remote(self._files.known if fetches else None)
        if not ray.wait([self._report], timeout=0)[0]:
            return None
        asked, self._report = self._report, None
        try:
            return ray.get(asked)
        except (ActorUnavailableError, ObjectLostError):  # The network failed for a moment.
            return None
        except RayActorError:
            return ProcessReport()

    def _take(self, report: ProcessReport) -> bool:
        self.pid, self._messages, self._wait = report.pid, report.messages, report.wait
        # Once the process has ended, its host may have lost the folder: missing files are not
        # removed here.
        removed = report.removed if report.exit is None else ()
        is_written = self._files.receive(report.changes, removed)
        if not is_written:
            self._fetch_at = time.monotonic() + _RETRY_SECONDS
        has_files = bool(report.changes) and is_written
        # All files arrive before the end, unless they cannot be written.
        if report.exit is not None and not has_files:
            self.end(report.exit)
        return has_files


def living_hosts() -> dict[str, str]:
    """Return the names of all living hosts, by Ray's ids of them."""
    return {host["NodeID"]: host["NodeName"] for host in ray.nodes() if host["Alive"]}


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
