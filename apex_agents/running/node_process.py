"""The process of one node: how it is started, what is known of it, how it is ended."""

import collections
import contextlib
import os
import pathlib
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apex_agents.running.fork_server import Process, start_process

# Environment variables for the nodes: the descriptor of the socket that ends when the supervisor
# does, and how often the node was started again.
CHANNEL = "APEX_AGENTS_CHANNEL"
NUM_RESTARTS = "APEX_AGENTS_NUM_RESTARTS"


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


class NodeStatus(NamedTuple):
    """How a node is.

    Attributes:
      pid: of its process, the newest one; None before the first and while it waits for another.
      is_alive: whether that process lives.
      num_restarts: how often it was started again.
    """

    pid: int | None
    is_alive: bool
    num_restarts: int


class NodeProcess:
    """The process of one node, and how often it was started.

    Attributes:
      command: how to run it.
      process: the newest one; None before the first, and while it waits for another.
      start_at: when to start it, `time.monotonic()`.
      num_restarts: how often it was started again.
      restarts: when, as far as that is remembered.
    """

    def __init__(self, command: NodeCommand):
        """Remember the command."""
        self.command = command
        self.process: Process | None = None
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
            CHANNEL: str(other_end.fileno()),
            NUM_RESTARTS: str(self.num_restarts),
        }
        with other_end, self.command.log.open("ab") as log:
            self.process = start_process(
                self.command.argv,
                {**os.environ, **self.command.env, **env},
                log,
                [other_end.fileno(), *self.command.fds],
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

    def status(self) -> NodeStatus:
        """Say how the node is."""
        pid = self.process.pid if self.process is not None else None
        return NodeStatus(pid, self.is_running(), self.num_restarts)

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
