"""Keeps the processes of a run alive on one machine, and ends them.

Horgan et al. 2018, appendix F ("Failure Tolerance"): a part that dies is started again. Launchpad
neither notices nor restarts a process that died.
"""

import collections
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

# Environment variables for the nodes: the node's name, the descriptor of the socket that ends when
# the supervisor does, and how often the node was started again.
NODE_NAME = "APEX_AGENTS_NODE"
CHANNEL = "APEX_AGENTS_CHANNEL"
NUM_RESTARTS = "APEX_AGENTS_NUM_RESTARTS"

_POLL_SECONDS = 0.1
_FIRST_DELAY_SECONDS = 0.5
_MAX_DELAY_SECONDS = 30.0
# How somebody else ends a process; everything else that ends one comes from within.
_SIGNALS_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)


class NodeCommand(NamedTuple):
    """How to run one node.

    Attributes:
      name: of the node.
      argv: command.
      env: environment variables besides those of this process.
      log: file to which all its output is appended.
      fds: descriptors that it inherits.
      stop_seconds: how long it may take to leave; then it is killed.
      stops_last: whether it leaves only when the others have.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log: pathlib.Path
    fds: Sequence[int] = ()
    stop_seconds: float = 5.0
    stops_last: bool = False


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
    ):
        """Prepare; `run` starts the nodes.

        Args:
          commands: one per node.
          max_restarts: of one node within the window; one more and the run ends.
          window_seconds: restarts are forgotten after this time.
          report: receives a sentence whenever a node dies.
        """
        self._nodes = [_Node(command) for command in commands]
        self._max_restarts = max_restarts
        self._window_seconds = window_seconds
        self._report = report
        self._stopping = False
        self._killing = False

    @property
    def num_restarts(self) -> int:
        """Restarts of all nodes since the beginning."""
        return sum(node.num_restarts for node in self._nodes)

    def run(self) -> NodeFailure | None:
        """Look after the nodes until told to stop, stop them, and say which failed, if one did."""
        failure = None
        for node in self._nodes:
            failure = failure or self._start(node)
        self._stopping = self._stopping or failure is not None
        while not self._stopping:
            time.sleep(_POLL_SECONDS)
            for node in self._nodes:
                failure = failure or self._look_after(node)
            self._stopping = self._stopping or failure is not None
        self._stop_nodes(node for node in self._nodes if not node.command.stops_last)
        self._stop_nodes(node for node in self._nodes if node.command.stops_last)
        return failure

    def stop(self) -> None:
        """Let the nodes leave, and `run` return; may be called by a signal handler."""
        self._stopping = True

    def kill(self) -> None:
        """End the nodes at once, and `run` too; may be called by a signal handler."""
        self._stopping = self._killing = True

    def _start(self, node: "_Node") -> NodeFailure | None:
        try:
            node.start()
        except OSError as error:  # Too many processes, open files or too little memory.
            return self._restart(node, f"could not be started ({error.strerror})")
        return None

    def _look_after(self, node: "_Node") -> NodeFailure | None:
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
            return node.failure(f"{what_happened} before it began its work")
        return self._restart(node, what_happened)

    def _restart(self, node: "_Node", what_happened: str) -> NodeFailure | None:
        node.forget_restarts_before(time.monotonic() - self._window_seconds)
        num_recent = len(node.restarts)
        if num_recent >= self._max_restarts:
            within = f"after {num_recent} restarts within {self._window_seconds:g} s"
            return node.failure(f"{what_happened}, {within}")
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
    """The process of one node, and how often it was started."""

    def __init__(self, command: NodeCommand):
        self.command = command
        self.process: subprocess.Popen | None = None
        self.start_at = 0.0
        self.num_restarts = 0
        self.restarts: collections.deque[float] = collections.deque()
        self._has_worked = False
        self._channel: socket.socket | None = None

    def start(self) -> None:
        """Start the process."""
        if self._channel is not None:
            self._channel.close()
        self._channel, other_end = socket.socketpair()
        self._channel.setblocking(False)
        env = {
            NODE_NAME: self.command.name,
            CHANNEL: str(other_end.fileno()),
            NUM_RESTARTS: str(self.num_restarts),
        }
        with other_end, self.command.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command.argv,
                env={**os.environ, **self.command.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(other_end.fileno(), *self.command.fds),
                start_new_session=True,  # Ctrl-C is for the supervisor, who stops them in order.
            )

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

    def has_worked(self) -> bool:
        """Whether one of the node's processes has reported that it works."""
        if not self._has_worked and self._channel is not None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self._has_worked = bool(self._channel.recv(1))
        return self._has_worked

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def ask_to_leave(self) -> None:
        """Send SIGTERM to the process."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End the process and those that it started, and wait for that."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def failure(self, reason: str) -> NodeFailure:
        """Describe the node's end."""
        return NodeFailure(self.command.name, reason, self.command.log)


def _describe(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "was killed (SIGKILL; by somebody, or by the kernel because memory ran out)"
    if exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    if exit_code == 0:
        return "left unasked"
    return f"failed with exit code {exit_code}"
