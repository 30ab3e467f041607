"""Keeps the processes of a run alive, wherever they are, and ends them.

Horgan et al. 2018, appendix F ("Failure Tolerance"): a part that dies is started again. Launchpad
neither notices nor restarts a process that died.
"""

import collections
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from apex_agents.nodes.process import (
    STOP,
    WORKS,
    LocalNodeProcess,
    NodeCommand,
    NodeProcess,
    NodeStatus,
)

_POLL_SECONDS = 0.1
_FIRST_DELAY_SECONDS = 0.5
_MAX_DELAY_SECONDS = 30.0


class NodeFailure(NamedTuple):
    """Why the supervisor gave up.

    Attributes:
      node: its name.
      reason: what happened, for people.
      log: its output.
    """

    node: str
    reason: str
    log: pathlib.Path


class Supervisor:
    """Starts nodes, starts them again when they die, and stops them all.

    A node that fails by itself before it has ever reported that it works (`node.report_ready`)
    would fail again: that ends the run at once.
    """

    def __init__(
        self,
        commands: Sequence[NodeCommand],
        max_restarts: int,
        window_seconds: float,
        report: Callable[[str], None],
        record: Callable[[Mapping[str, NodeStatus]], None] = lambda nodes: None,
        start: Callable[[NodeCommand, int], NodeProcess] = LocalNodeProcess,
    ):
        """Prepare; `run` starts the nodes.

        Args:
          commands: one per node.
          max_restarts: of one node within the window; one more and the run ends.
          window_seconds: restarts are forgotten after this time.
          report: receives a sentence whenever a node dies.
          record: receives how all nodes are, by their names, whenever that changes.
          start: starts the process of a node that was started again so many times; may raise an
            OSError.
        """
        self._nodes = [_Node(command) for command in commands]
        self._start_process = start
        self._max_restarts = max_restarts
        self._window_seconds = window_seconds
        self._report = report
        self._record = record
        self._recorded: Mapping[str, NodeStatus] = {}
        self._stopping = False
        self._killing = False

    def run(self) -> NodeFailure | None:
        """Look after the nodes until told to stop, stop them, and say which failed, if one did."""
        failure = None
        for node in self._nodes:
            failure = failure or self._start(node)
        self._stopping = self._stopping or failure is not None
        while not self._stopping:
            self._record_changes()
            time.sleep(_POLL_SECONDS)
            for node in self._nodes:
                failure = failure or self._look_after(node)
            self._stopping = self._stopping or failure is not None
        self._record_changes()
        self._stop_nodes(node for node in self._nodes if not node.command.stops_last)
        self._stop_nodes(node for node in self._nodes if node.command.stops_last)
        self._record_changes()
        return failure

    def stop(self) -> None:
        """Let the nodes leave, and `run` return; may be called by a signal handler."""
        self._stopping = True

    def kill(self) -> None:
        """End the nodes at once, and `run` too; may be called by a signal handler."""
        self._stopping = self._killing = True

    def _record_changes(self) -> None:
        nodes = {node.command.name: node.status() for node in self._nodes}
        if nodes != self._recorded:
            self._record(nodes)
            self._recorded = nodes

    def _start(self, node: "_Node") -> NodeFailure | None:
        try:
            node.process = self._start_process(node.command, node.num_restarts)
        except OSError as error:
            return self._restart(node, f"could not be started ({error.strerror})")
        return None

    def _look_after(self, node: "_Node") -> NodeFailure | None:
        if node.process is None:
            return self._start(node) if time.monotonic() >= node.start_at else None
        ended = node.process.poll()
        messages = node.process.messages()
        node.has_worked = node.has_worked or WORKS in messages
        self._stopping = self._stopping or STOP in messages  # The learner says so before it leaves.
        if ended is None or self._stopping:
            return None
        if not ended.can_restart:
            return _fail(node, ended.description)
        if not ended.from_outside and not node.has_worked:
            return _fail(node, f"{ended.description} before it began its work")
        return self._restart(node, ended.description)

    def _restart(self, node: "_Node", what_happened: str) -> NodeFailure | None:
        node.forget_restarts_before(time.monotonic() - self._window_seconds)
        num_recent = len(node.restarts)
        if num_recent >= self._max_restarts:
            within = f"after {num_recent} restarts within {self._window_seconds:g} s"
            return _fail(node, f"{what_happened}, {within}")
        delay = min(_FIRST_DELAY_SECONDS * 2**num_recent, _MAX_DELAY_SECONDS)
        node.restart_in(delay)
        self._report(
            f"Node {node.command.name} {what_happened}; it starts again in {delay:g} s "
            f"(restart {num_recent + 1} of {self._max_restarts} allowed within "
            f"{self._window_seconds:g} s)."
        )
        return None

    def _stop_nodes(self, nodes: Iterable["_Node"]) -> None:
        running = [node for node in nodes if node.is_running()]
        started = time.monotonic()
        for node in running:
            node.ask_to_leave()
        while running:
            time.sleep(_POLL_SECONDS)
            running = [node for node in running if node.is_running()]
            elapsed = time.monotonic() - started
            for node in running:
                if self._killing:
                    node.kill()
                elif elapsed > node.command.stop_seconds:
                    self._report(f"Node {node.command.name} did not leave and was killed.")
                    node.kill()


class _Node:
    """A node: its process, and how often it was started."""

    def __init__(self, command: NodeCommand):
        self.command = command
        self.process: NodeProcess | None = None  # While it waits for another.
        self.start_at = 0.0  # `time.monotonic()`
        self.num_restarts = 0
        self.restarts: collections.deque[float] = collections.deque()  # When, lately.
        self.has_worked = False

    def restart_in(self, seconds: float) -> None:
        """Let `start_at` be in so many seconds, and nothing of the process be left."""
        self.kill()
        self.process = None
        self.start_at = time.monotonic() + seconds
        self.restarts.append(self.start_at)
        self.num_restarts += 1

    def forget_restarts_before(self, start: float) -> None:
        """Forget what is outside of the window."""
        while self.restarts and self.restarts[0] < start:
            self.restarts.popleft()

    def status(self) -> NodeStatus:
        pid, host = (self.process.pid, self.process.host) if self.process else (None, "")
        is_alive = pid is not None and self.is_running()
        return NodeStatus(pid, is_alive, self.num_restarts, host)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_leave(self) -> None:
        if self.process is not None:
            self.process.ask_to_leave()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


def _fail(node: _Node, reason: str) -> NodeFailure:
    return NodeFailure(node.command.name, reason, node.command.log)
