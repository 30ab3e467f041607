"""Keeps the processes of a run alive on one machine, and ends them.

Horgan et al. 2018, appendix F ("Failure Tolerance"): a part that dies is started again. Launchpad
neither notices nor restarts a process that died.
"""

import pathlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from apex_agents.running.node_process import NodeCommand, NodeProcess, NodeStatus

_POLL_SECONDS = 0.1
_FIRST_DELAY_SECONDS = 0.5
_MAX_DELAY_SECONDS = 30.0
# How somebody else ends a process; everything else that ends one comes from within.
_SIGNALS_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)


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
    ):
        """Prepare; `run` starts the nodes.

        Args:
          commands: one per node.
          max_restarts: of one node within the window; one more and the run ends.
          window_seconds: restarts are forgotten after this time.
          report: receives a sentence whenever a node dies.
          record: receives how all nodes are, by their names, whenever that changes.
        """
        self._nodes = [NodeProcess(command) for command in commands]
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

    def _start(self, node: NodeProcess) -> NodeFailure | None:
        try:
            node.start()
        except OSError as error:  # Too many processes, open files or too little memory.
            return self._restart(node, f"could not be started ({error.strerror})")
        return None

    def _look_after(self, node: NodeProcess) -> NodeFailure | None:
        if node.process is None:
            return self._start(node) if time.monotonic() >= node.start_at else None
        exit_code = node.process.poll()
        # The learner tells the supervisor to stop before it leaves.
        if exit_code is None or self._stopping:
            return None
        what_happened = _describe(exit_code)
        has_worked = node.has_worked()  # Asked in any case: the answer goes with the process.
        from_outside = exit_code == 0 or -exit_code in _SIGNALS_FROM_OUTSIDE
        if not from_outside and not has_worked:
            return _fail(node, f"{what_happened} before it began its work")
        return self._restart(node, what_happened)

    def _restart(self, node: NodeProcess, what_happened: str) -> NodeFailure | None:
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

    def _stop_nodes(self, nodes: Iterable[NodeProcess]) -> None:
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


def _fail(node: NodeProcess, reason: str) -> NodeFailure:
    return NodeFailure(node.command.name, reason, node.command.log)


def _describe(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "was killed (SIGKILL; by somebody, or by the kernel because memory ran out)"
    if exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    if exit_code == 0:
        return "left unasked"
    return f"failed with exit code {exit_code}"
