"""Starts the nodes of a run, restarts those that die, and stops them all.

Horgan et al. 2018, appendix F ("Failure Tolerance"): a part that dies is restarted. Launchpad
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
    Exit,
    LocalNodeProcess,
    NodeCommand,
    NodeProcess,
    NodeStatus,
)


class RestartPolicy(NamedTuple):
    """How often, and how soon, a node is restarted.

    Attributes:
      max_restarts: number of restarts of one node within the window; one more ends the run.
      window_seconds: seconds after which a restart is forgotten.
      first_delay_seconds: seconds until the first restart within the window; they double with
        every further one.
      max_delay_seconds: largest delay in seconds.
    """

    max_restarts: int
    window_seconds: float
    first_delay_seconds: float = 0.5
    max_delay_seconds: float = 30.0


class NodeRestart(NamedTuple):
    """A node died and will be restarted; `str` makes a sentence of it.

    Attributes:
      node: name of the node.
      exit: how its process ended.
      delay_seconds: seconds until its next process starts.
      num_recent: number of its restarts within the window, this one included.
      policy: policy that allows it.
    """

    node: str
    exit: Exit
    delay_seconds: float
    num_recent: int
    policy: RestartPolicy

    def __str__(self) -> str:
        return (
            f"Node {self.node} {self.exit.description}; it restarts in {self.delay_seconds:g} s "
            f"(restart {self.num_recent} of {self.policy.max_restarts} allowed within "
            f"{self.policy.window_seconds:g} s)."
        )


class NodeKill(NamedTuple):
    """A node did not exit when it was stopped, and was killed; `str` makes a sentence of it.

    Attributes:
      node: name of the node.
      stop_seconds: seconds that it had to exit.
    """

    node: str
    stop_seconds: float

    def __str__(self) -> str:
        return f"Node {self.node} did not exit within {self.stop_seconds:g} s and was killed."


class NodeFailure(NamedTuple):
    """Why the supervisor ended the run.

    Attributes:
      node: name of the node that failed.
      exit: how its last process ended.
      log: file with its output.
      circumstance: what rules out a restart, to complete the description of the exit; '' if the
        exit itself does.
    """

    node: str
    exit: Exit
    log: pathlib.Path
    circumstance: str = ""

    @property
    def reason(self) -> str:
        """What happened, as a predicate for the node's name."""
        return self.exit.description + self.circumstance


class Supervisor:
    """Keeps nodes running until one of them, or `stop`, says that the run is over.

    A node that fails by itself before it has ever reported that it works (`node.report_ready`)
    would fail again: that ends the run at once.
    """

    def __init__(
        self,
        commands: Sequence[NodeCommand],
        policy: RestartPolicy,
        report: Callable[[NodeRestart | NodeKill], None],
        record: Callable[[Mapping[str, NodeStatus]], None] = lambda nodes: None,
        start: Callable[[NodeCommand, int], NodeProcess] = LocalNodeProcess,
        poll_seconds: float = 0.1,
    ):
        """Prepare; `run` starts the nodes.

        Args:
          commands: commands of the nodes.
          policy: when nodes are restarted.
          report: receives what happens to nodes.
          record: receives the states of all nodes by their names whenever one changes.
          start: starts a process of a node, given the number of its restarts; may raise an OSError.
          poll_seconds: period of looking at the processes, in seconds.
        """
        self._nodes = [_Node(command) for command in commands]
        self._start_process = start
        self._policy = policy
        self._report = report
        self._record = record
        self._poll_seconds = poll_seconds
        self._recorded: Mapping[str, NodeStatus] = {}
        self._stopping = False
        self._killing = False

    def run(self) -> NodeFailure | None:
        """Run the nodes until the end of the run; return which one failed, if one did."""
        failure = None
        for node in self._nodes:
            failure = failure or self._start(node)
        self._stopping = self._stopping or failure is not None
        while not self._stopping:
            self._record_changes()
            time.sleep(self._poll_seconds)
            for node in self._nodes:
                failure = failure or self._check(node)
            self._stopping = self._stopping or failure is not None
        self._record_changes()
        self._stop_nodes(node for node in self._nodes if not node.command.stops_last)
        self._stop_nodes(node for node in self._nodes if node.command.stops_last)
        self._record_changes()
        return failure

    def stop(self) -> None:
        """Stop the nodes, and let `run` return; may be called by a signal handler."""
        self._stopping = True

    def kill(self) -> None:
        """Kill the nodes, and let `run` return; may be called by a signal handler."""
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
            reason = f"could not be started ({error.strerror})"
            return self._restart(node, Exit(reason, from_outside=True))
        return None

    def _check(self, node: "_Node") -> NodeFailure | None:
        """Start a node whose delay is over, and restart one that has died."""
        if node.process is None:
            return self._start(node) if time.monotonic() >= node.start_at else None
        ended = node.process.poll()
        messages = node.process.messages()
        node.has_worked = node.has_worked or WORKS in messages
        self._stopping = self._stopping or STOP in messages  # The learner's, before it exits.
        if ended is None or self._stopping:
            return None
        if not ended.can_restart:
            return node.failure(ended)
        if not ended.from_outside and not node.has_worked:
            return node.failure(ended, " before it began its work")
        return self._restart(node, ended)

    def _restart(self, node: "_Node", ended: Exit) -> NodeFailure | None:
        policy = self._policy
        num_recent = node.count_restarts_since(time.monotonic() - policy.window_seconds)
        if num_recent >= policy.max_restarts:
            within = f"within {policy.window_seconds:g} s"
            return node.failure(ended, f", after {num_recent} restarts {within}")
        delay = min(policy.first_delay_seconds * 2**num_recent, policy.max_delay_seconds)
        node.restart_in(delay)
        self._report(NodeRestart(node.command.name, ended, delay, num_recent + 1, policy))
        return None

    def _stop_nodes(self, nodes: Iterable["_Node"]) -> None:
        """Stop some nodes, and wait until all of them have exited or were killed."""
        running = [(node.command, node.process) for node in nodes if node.process is not None]
        started = time.monotonic()
        for _, process in running:
            process.terminate()
        while running := [pair for pair in running if pair[1].poll() is None]:
            for command, process in running:
                is_late = time.monotonic() - started > command.stop_seconds
                if is_late and not self._killing:
                    self._report(NodeKill(command.name, command.stop_seconds))
                if is_late or self._killing:
                    process.kill()
            time.sleep(self._poll_seconds)


class _Node:
    """A node: its current process and its restarts."""

    def __init__(self, command: NodeCommand):
        self.command = command
        self.process: NodeProcess | None = None  # None while it waits for a restart.
        self.start_at = 0.0  # In the time of `time.monotonic`.
        self.num_restarts = 0
        self.restarts: collections.deque[float] = collections.deque()  # Times of the recent ones.
        self.has_worked = False

    def restart_in(self, seconds: float) -> None:
        """Kill what is left of the process, and schedule the next one."""
        if self.process is not None:
            self.process.kill()
        self.process = None
        self.start_at = time.monotonic() + seconds
        self.restarts.append(self.start_at)
        self.num_restarts += 1

    def count_restarts_since(self, start: float) -> int:
        """Count the restarts since a time, and forget those before it."""
        while self.restarts and self.restarts[0] < start:
            self.restarts.popleft()
        return len(self.restarts)

    def status(self) -> NodeStatus:
        if self.process is None:
            return NodeStatus(None, False, self.num_restarts)
        pid, ended = self.process.pid, self.process.poll()
        is_alive = pid is not None and ended is None
        exit_code = None if ended is None else ended.exit_code
        return NodeStatus(pid, is_alive, self.num_restarts, self.process.host, exit_code)

    def failure(self, ended: Exit, circumstance: str = "") -> NodeFailure:
        return NodeFailure(self.command.name, ended, self.command.log, circumstance)
