"""The process of a node on a host of a cluster, as the supervisor sees it."""

import contextlib
from collections.abc import Sequence
from typing import Any

import ray

from apex_agents.running.mirror import NodeFiles, Piece
from apex_agents.running.node_process import Exit
from apex_agents.running.outages import report_failure, report_success
from apex_agents.running.ray_cluster import living_hosts
from apex_agents.running.ray_guard import Look, Site

_KILL_SECONDS = 5.0


class RemoteProcess:
    """A process that a guard looks after; see `node_process.NodeProcess`.

    Attributes:
      num_restarts: how often the node was started again.
      site: where the process is; None until it was started.
      pid: of the process there.
      host: what people call the host.
    """

    def __init__(self, guard: Any, files: NodeFiles, is_bound: bool, num_restarts: int):
        """Describe a process that is about to be started.

        Args:
          guard: the actor of Ray.
          files: of the node, in this host's copy of the run's folder.
          is_bound: whether the node cannot go on without its host.
          num_restarts: how often the node was started again.
        """
        self.num_restarts = num_restarts
        self.site: Site | None = None
        self.pid: int | None = None
        self.host = ""
        self._guard = guard
        self._files = files
        self._is_bound = is_bound
        self._ended: Exit | None = None
        self._said = b""
        self._look: Any = None  # Asked for.

    def begin(self, site: Site, host: str) -> None:
        """Note where it was started."""
        self.host = host
        self.site = site

    def end(self, ended: Exit) -> None:
        """Note how it ended, unless that is known."""
        self._ended = self._ended or ended

    def look(self) -> None:
        """See whether there is news of the process, without waiting for it."""
        if self.site is None or self._ended is not None:
            return
        if self._look is None:
            known = None if self.site.shares_workdir else self._files.states()
            self._look = self._guard.look.remote(known)
        if not ray.wait([self._look], timeout=0)[0]:
            return
        look, self._look = self._look, None
        try:
            self._take(ray.get(look))
        except ray.exceptions.RayActorError:
            self.lose()

    def lose(self) -> None:
        """Note that its host, or its guard there, is gone."""
        assert self.site is not None
        is_there = self.site.node_id in living_hosts()
        lost = f"was lost with {'a worker of Ray on' if is_there else 'its host'} {self.host}"
        if self._is_bound:
            lost += "; the same command goes on from the learner's last checkpoint, elsewhere"
        self.end(Exit(lost, from_outside=True, can_restart=not self._is_bound))

    def poll(self) -> Exit | None:
        return self._ended

    def said(self) -> bytes:
        return self._said

    def ask_to_leave(self) -> None:
        self._guard.ask_to_leave.remote()

    def kill(self) -> None:
        if self.site is not None:
            # A guard whose host was just lost does not answer, and has nothing to kill.
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._guard.kill.remote(), timeout=_KILL_SECONDS)
        self.end(Exit("was killed", from_outside=True))

    def _take(self, look: Look) -> None:
        if look.num_restarts != self.num_restarts:  # Another guard, on another host perhaps.
            self.lose()
            return
        self.pid, self._said = look.pid, look.said
        more_may_follow = bool(look.pieces) and self._write(look.pieces)
        if look.ended is not None and not more_may_follow:
            self.end(look.ended)

    def _write(self, pieces: Sequence[Piece]) -> bool:
        """Write down what is new on the other host; return whether that went well."""
        try:
            self._files.write(pieces)
        except OSError as error:
            report_failure(self._files.folder, error)
            return False
        report_success(self._files.folder)
        return True
