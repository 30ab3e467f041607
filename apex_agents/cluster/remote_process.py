"""The process of a node on a host of a cluster, as the supervisor sees it."""

import contextlib
import time
from collections.abc import Collection
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError, RayError

from apex_agents.cluster.file_sync import FileSync
from apex_agents.cluster.host_agent import HostInfo, ProcessReport
from apex_agents.cluster.placement import living_hosts
from apex_agents.nodes.process import REPLAYS, Exit, NodeCommand
from apex_agents.waits import Wait

_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 10.0  # Until what could not be written is fetched again.


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
        self._addresses = ""  # Of the replays, as the process knows them.
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
            self._agent.send.remote(addresses, self._num_restarts)

    def suspend(self) -> None:
        self._await(self._agent.suspend)

    def resume(self) -> None:
        self._await(self._agent.resume)

    def terminate(self) -> None:
        if self.host_info is None:
            self.end(Exit("was stopped before it was started", from_outside=True))
        else:
            self._agent.terminate.remote(self._num_restarts)

    def abort(self) -> None:
        self._await(self._agent.abort)

    def kill(self) -> None:
        self._await(self._agent.kill)
        self.end(Exit("was killed", from_outside=True))

    def _await(self, method: Any) -> None:
        """Call a method of the host agent, and wait until it is done if there is a process."""
        called = method.remote(self._num_restarts)
        if self.host_info is not None and self._exit is None:
            # A host agent whose host was just lost does not answer, and has no process.
            with contextlib.suppress(RayError):
                ray.get(called, timeout=_ANSWER_SECONDS)

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
        # After its end a host may have lost the folder: nothing is removed here then.
        removed = report.removed if report.exit is None else ()
        is_written = self._files.receive(report.changes, removed)
        if not is_written:
            self._fetch_at = time.monotonic() + _RETRY_SECONDS
        has_files = bool(report.changes) and is_written
        # All files arrive before the end, unless they cannot be written.
        if report.exit is not None and not has_files:
            self.end(report.exit)
        return has_files
