"""Starts the nodes of a run, restarts those that die, and stops them all.

Horgan et al. 2018, appendix F ("Failure Tolerance"): a part that dies is restarted.
"""

import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from apex_agents.nodes.process import (
    EXIT_MOVED,
    Exit,
    LocalNodeProcess,
    NodeCommand,
    NodeProcess,
    NodeStatus,
)
from apex_agents.waits import LACKS, STOP, WORKS, Notices, Wait

# A poll that takes this much longer than its period says that this process was stopped meanwhile.
_STOPPED_SECONDS = 5.0


class RestartPolicy(NamedTuple):
    """How often, and how soon, a node is restarted."""

    max_restarts: int  # Limit for one node within the window; one more ends the run.
    window_seconds: float  # Time after which a restart is forgotten.
    first_delay_seconds: float = 0.5  # Doubles with every further restart within the window.
    max_delay_seconds: float = 30.0


class NodeEvent(NamedTuple):
    """A node died and will be restarted, waits, or had to be killed; `str` makes a sentence."""

    node: str  # Its name.
    description: str  # What happened, as a predicate for the node's name.
    exit: Exit | None = None  # How its process ended before a restart; None if it was killed.
    delay_seconds: float = 0.0  # Time until its next process starts.
    num_recent: int = 0  # Number of its restarts that count within the policy's window.

    def __str__(self) -> str:
        return f"Node {self.node} {self.description}."


class NodeFailure(NamedTuple):
    """Why the supervisor ended the run."""

    node: str  # Its name.
    exit: Exit  # How its last process ended, and why it is not restarted.
    log: pathlib.Path  # The file with its output.


class Supervisor:
    """Keeps nodes running until one of them, or `stop`, says that the run is over.

    A node that fails by itself before it has ever said that it works would fail again: that ends
    the run at once.
    """

    def __init__(
        self,
        commands: Sequence[NodeCommand],
        policy: RestartPolicy,
        report: Callable[[NodeEvent], None],
        record: Callable[[Mapping[str, NodeStatus]], None],
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
        self._failure: NodeFailure | None = None
        self._stopping = False
        self._killing = False
        self._suspending = False
        self._resumed_at = time.monotonic()  # When this process began, or was continued.

    def run(self) -> NodeFailure | None:
        """Run the nodes until the end of the run; return which one failed, if one did."""
        for node in self._nodes:
            self._start(node)
        while not self._stopping:
            self._record_changes()
            self._sleep()
            for node in self._nodes:
                self._check(node)
        self._record_changes()
        self._stop_nodes(node for node in self._nodes if not node.command.stops_last)
        self._stop_nodes(node for node in self._nodes if node.command.stops_last)
        self._record_changes()
        return self._failure

    def stop(self) -> None:
        """Stop the nodes, and let `run` return; may be called by a signal handler."""
        self._stopping = True

    def kill(self) -> None:
        """Kill the nodes, and let `run` return; may be called by a signal handler."""
        self._stopping = self._killing = True

    def suspend(self) -> None:
        """Stop the nodes and then this process, until it is continued; for signal handlers."""
        self._suspending = True

    def resume(self) -> None:
        """Forget `suspend` if it has not been done yet: this process was continued meanwhile."""
        self._suspending = False

    def _sleep(self) -> None:
        """Sleep for a period; nodes are not late by the time for which this process was stopped."""
        slept_at, was_suspended = time.monotonic(), self._suspending
        if self._suspending:
            processes = [node.process for node in self._nodes if node.process is not None]
            for process in processes:
                process.suspend()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._suspending = False
            for process in processes:
                process.resume()
        time.sleep(self._poll_seconds)
        now = time.monotonic()
        if was_suspended or now > slept_at + self._poll_seconds + _STOPPED_SECONDS:
            self._resumed_at = now

    def _record_changes(self) -> None:
        nodes = {node.command.name: node.status() for node in self._nodes}
        if nodes != self._recorded:
            self._record(nodes)
            self._recorded = nodes

    def _start(self, node: "_Node") -> None:
        if self._stopping:
            return
        try:
            node.process = self._start_process(node.command, len(node.restarts))
        except OSError as error:
            reason = f"could not be started ({error.strerror})"
            self._restart(node, Exit(reason, from_outside=True))

    def _check(self, node: "_Node") -> None:
        """Start a node whose delay is over, and restart one that has died."""
        if node.process is None:
            if time.monotonic() >= node.restarts[-1]:
                self._start(node)
            return
        ended = node.process.poll()
        messages = node.process.messages()
        node.has_worked = node.has_worked or WORKS in messages
        self._stopping = self._stopping or STOP in messages  # The learner's, before it exits.
        if self._stopping:
            return
        if LACKS in messages and not node.lacks:
            log = node.command.log
            lacks = f"goes on without something that it could not save or read; {log} says what"
            self._report(NodeEvent(node.command.name, lacks))
        node.lacks = LACKS in messages
        if ended is None:
            self._check_wait(node, node.process.wait())
            return
        if not ended.from_outside and not node.has_worked:
            self._fail(node, ended, " before its first step")
        else:
            self._restart(node, ended)

    def _check_wait(self, node: "_Node", wait: Wait | None) -> None:
        """Restart a node that waits for longer than it may, and report another long wait."""
        node.wait = wait = wait and wait.within(time.monotonic() - self._resumed_at)
        if wait is None:
            return
        if wait.seconds >= wait.limit_seconds:
            assert node.process is not None
            node.process.abort()
            self._restart(node, Exit(f"{wait}, which is over its limit", from_outside=True))
        elif node.notices.is_due(wait):
            self._report(NodeEvent(node.command.name, str(wait)))

    def _restart(self, node: "_Node", ended: Exit) -> None:
        policy, now = self._policy, time.monotonic()
        num_recent = sum(at >= now - policy.window_seconds for at in node.deaths)
        within = f"within {policy.window_seconds:g} s"
        has_moved = ended.exit_code == EXIT_MOVED  # A node whose replay has moved did not fail.
        if num_recent >= policy.max_restarts and not has_moved:
            self._fail(node, ended, f", after {num_recent} restarts {within}")
            return
        doubled = policy.first_delay_seconds * 2 ** min(num_recent, 60)
        delay = min(doubled, policy.max_delay_seconds)
        if node.process is not None:
            node.process.kill()  # Also kills the processes that it started.
        node.process = node.wait = None
        node.restarts.append(now + delay)
        description = f"{ended.description}; it restarts in {delay:g} s"
        if not has_moved:
            node.deaths.append(now + delay)
            num_recent += 1
            description += f" (restart {num_recent} of {policy.max_restarts} allowed {within})"
        self._report(NodeEvent(node.command.name, description, ended, delay, num_recent))

    def _fail(self, node: "_Node", ended: Exit, circumstance: str = "") -> None:
        ended = ended._replace(description=ended.description + circumstance)
        self._failure = NodeFailure(node.command.name, ended, node.command.log)
        self._stopping = True

    def _stop_nodes(self, nodes: Iterable["_Node"]) -> None:
        """Stop some nodes, and wait until all of them have exited or were killed."""
        processes = [(node.command, node.process) for node in nodes if node.process is not None]
        running, started = processes, time.monotonic()
        for _, process in running:
            process.terminate()
        while running := [pair for pair in running if pair[1].poll() is None]:
            for command, process in running:
                started = max(started, self._resumed_at)
                is_late = time.monotonic() - started > command.stop_seconds
                if is_late and not self._killing:
                    late = f"did not exit within {command.stop_seconds:g} s and was killed"
                    wait = process.wait()
                    late += f": it {wait}" if wait else ""
                    self._report(NodeEvent(command.name, late))
                if is_late or self._killing:
                    process.kill()
            self._sleep()
        for _, process in processes:
            if not process.host:  # It ran on this machine, and its child processes may still live.
                process.kill()


class _Node:
    """A node: its current process and its restarts."""

    def __init__(self, command: NodeCommand):
        self.command = command
        self.process: NodeProcess | None = None  # None while it waits for a restart.
        self.restarts: list[float] = []  # Past and planned ones, in the time of `time.monotonic`.
        # Those restarts that followed a death, not a move; they count against the policy.
        self.deaths: list[float] = []
        self.has_worked = False
        self.lacks = False  # Whether its process has said so.
        self.wait: Wait | None = None  # The wait of its process, as of the last look.
        self.notices = Notices()

    def status(self) -> NodeStatus:
        num_restarts = len(self.restarts)
        if self.process is None:
            return NodeStatus(None, False, num_restarts)
        pid, ended = self.process.pid, self.process.poll()
        is_alive = pid is not None and ended is None
        exit_code = None if ended is None else ended.exit_code
        wait = self.wait.in_steps() if is_alive and self.wait else ()
        return NodeStatus(pid, is_alive, num_restarts, self.process.host, exit_code, *wait)
