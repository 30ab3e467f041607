"""The processes of nodes: how they are started, what is known of them, how they are ended."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from apex_agents.nodes.fork_server import start_process

# Environment variables for the nodes: the descriptor of the socket that ends when the supervisor
# does, and how often the node was started again.
CHANNEL = "APEX_AGENTS_CHANNEL"
NUM_RESTARTS = "APEX_AGENTS_NUM_RESTARTS"
# What a node says through the socket: that it works, and that the program is to stop.
WORKS, STOP = b"w", b"s"
_MAX_MESSAGES = 64
# How somebody else ends a process; everything else that ends one comes from within.
_SIGNALS_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)


def entry_argv(job: int, index: int) -> list[str]:
    """Return the command of a node.

    Args:
      job: descriptor, which the process inherits, of a file with the functions of all nodes, as
        Launchpad serialises them.
      index: of the node's function.
    """
    # Found, not imported: it defines flags, and Launchpad takes seconds.
    launchpad = importlib.util.find_spec("launchpad")
    assert launchpad is not None and launchpad.origin is not None
    entry = pathlib.Path(launchpad.origin).with_name("nodes") / "python" / "process_entry.py"
    return [
        sys.executable,
        str(entry),
        f"--data_file=/proc/self/fd/{job}",
        f"--lp_task_id={index}",
        # The supervisor kills who does not leave; nobody needs to do it themselves.
        "--lp_termination_notice_secs=-1",
    ]


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
      host: where the process is; '' for the machine of the supervisor.
    """

    pid: int | None
    is_alive: bool
    num_restarts: int
    host: str = ""


class Exit(NamedTuple):
    """How a process ended.

    Attributes:
      description: what happened, to go on after the node's name.
      from_outside: whether somebody ended it, and not what happened within.
      can_restart: whether the node can go on with another process.
    """

    description: str
    from_outside: bool
    can_restart: bool = True


class NodeProcess(Protocol):
    """One process of a node, wherever it is.

    Attributes:
      pid: of the process; None until that is known.
      host: see `NodeStatus`.
    """

    @property
    def pid(self) -> int | None: ...

    @property
    def host(self) -> str: ...

    def poll(self) -> Exit | None:
        """Return how it ended, None while it lives."""

    def messages(self) -> bytes:
        """Return all that it has said: `WORKS`, `STOP`."""

    def ask_to_leave(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """End it and what it has started, and wait for that."""


class LocalNodeProcess:
    """A process on this machine; see `NodeProcess`."""

    host = ""

    def __init__(self, command: NodeCommand, num_restarts: int):
        """Start it.

        Args:
          command: what to run.
          num_restarts: how often the node was started again.

        Raises:
          OSError: too many processes, open files or too little memory.
        """
        self._messages = b""
        self._channel, other_end = socket.socketpair()
        self._channel.setblocking(False)
        env = {CHANNEL: str(other_end.fileno()), NUM_RESTARTS: str(num_restarts)}
        with other_end, command.log.open("ab") as log:
            self._process = start_process(
                command.argv,
                {**os.environ, **command.env, **env},
                log,
                [other_end.fileno(), *command.fds],
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> Exit | None:
        exit_code = self._process.poll()
        return None if exit_code is None else _describe(exit_code)

    def messages(self) -> bytes:
        with contextlib.suppress(OSError):  # Nothing new, or nobody there.
            self._messages += self._channel.recv(_MAX_MESSAGES)
        return self._messages

    def ask_to_leave(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()


def _describe(exit_code: int) -> Exit:
    from_outside = exit_code == 0 or -exit_code in _SIGNALS_FROM_OUTSIDE
    if exit_code == -signal.SIGKILL:
        description = "was killed (SIGKILL; by somebody, or by the kernel because memory ran out)"
    elif exit_code < 0:
        description = f"ended by {signal.Signals(-exit_code).name}"
    elif exit_code == 0:
        description = "left unasked"
    else:
        description = f"failed with exit code {exit_code}"
    return Exit(description, from_outside)
