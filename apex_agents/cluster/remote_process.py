"""The process of a node on a host of a cluster, as the supervisor sees it."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError, RayError

from apex_agents.cluster.file_sync import NodeFiles, Piece
from apex_agents.cluster.host_agent import HostInfo, ProcessReport
from apex_agents.cluster.placement import living_hosts
from apex_agents.nodes.process import Exit
from apex_agents.runs.files import report_failure, report_success

_KILL_SECONDS = 5.0
_DISK_SECONDS = 10.0  # Until what could not be written is tried again.


class RemoteNodeProcess:
    """A process that a guard looks after; see `node_process.NodeProcess`.

    Attributes:
      agent_handle: the actor of Ray.
      num_restarts: how often the node was started again.
      site: where the process is; None until it was started.
      pid: of the process there.
      host: what people call the host.
    """

    def __init__(self, agent_handle: Any, files: NodeFiles, is_bound: bool, num_restarts: int):
        """Describe a process that is about to be started.

        Args:
          agent_handle: the actor of Ray.
          files: of the node, in this host's copy of the run's folder.
          is_bound: whether the node cannot go on without its host.
          num_restarts: how often the node was started again.
        """
        self.agent_handle = agent_handle
        self.num_restarts = num_restarts
        self.site: HostInfo | None = None
        self.pid: int | None = None
        self.host = ""
        self._files = files
        self._is_bound = is_bound
        self._ended: Exit | None = None
        self._messages = b""
        self._look: Any = None  # Asked for.
        self._last_taken = 0  # Number of a look.
        self._write_at = 0.0  # `time.monotonic()`

    def begin(self, site: HostInfo, host: str) -> None:
        """Note where it was started."""
        self.host = host
        self.site = site

    def end(self, ended: Exit) -> None:
        """Note how it ended, unless that is known."""
        self._ended = self._ended or ended

    def look(self) -> bool:
        """See whether there is news of the process, without waiting for it.

        Returns:
          Whether files have come.
        """
        if self.site is None or self._ended is not None:
            return False
        if self._look is None:
            wants_files = not self.site.shares_workdir and time.monotonic() >= self._write_at
            self._look = self.agent_handle.look.remote(self._last_taken, wants_files)
        if not ray.wait([self._look], timeout=0)[0]:
            return False
        asked, self._look = self._look, None
        try:
            look: ProcessReport = ray.get(asked)
        except (ActorUnavailableError, ObjectLostError):  # Of the network: asked again.
            return False
        except RayActorError:
            look = ProcessReport()
        if look.num_restarts != self.num_restarts:  # Of no guard, or of another one.
            self.lose(host_is_there=self.site.node_id in living_hosts())
            return False
        return self._take(look)

    def lose(self, host_is_there: bool) -> None:
        """Note that its host, or only its guard there, is gone."""
        lost = f"was lost with {'a worker of Ray on' if host_is_there else 'its host'} {self.host}"
        if self._is_bound:
            lost += "; the same command goes on from the learner's last checkpoint"
        self.end(Exit(lost, from_outside=True, can_restart=not self._is_bound))

    def poll(self) -> Exit | None:
        return self._ended

    def messages(self) -> bytes:
        return self._messages

    def ask_to_leave(self) -> None:
        if self.site is None:
            self.end(Exit("left before it began", from_outside=True))
        else:
            self.agent_handle.ask_to_leave.remote(self.num_restarts)

    def kill(self) -> None:
        killed = self.agent_handle.kill.remote(self.num_restarts)
        if self.site is not None and self._ended is None:
            # A guard whose host was just lost does not answer, and has nothing to kill.
            with contextlib.suppress(RayError):
                ray.get(killed, timeout=_KILL_SECONDS)
        self.end(Exit("was killed", from_outside=True))

    def _take(self, look: ProcessReport) -> bool:
        self.pid, self._messages = look.pid, look.messages
        is_written = self._write(look.pieces)
        if is_written:
            self._last_taken = look.number
        # Files come before the end, unless there is no room for them.
        if look.ended is not None and not (look.pieces and is_written):
            self.end(look.ended)
        return bool(look.pieces) and is_written

    def _write(self, pieces: Sequence[Piece]) -> bool:
        """Write down what is new on the other host; return whether that went well."""
        try:
            for piece in pieces:
                self._files.write(piece)
        except OSError as error:
            report_failure(self._files.log, error)
            self._write_at = time.monotonic() + _DISK_SECONDS
            return False
        if pieces:
            report_success(self._files.log)
        return True
