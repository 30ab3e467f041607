"""Processes of nodes: what starts one, what is known of it, how it is ended, where it listens."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from apex_agents.nodes.fork_server import script_argv, start_process
from apex_agents.stopwatch import STARTED_AT, Stopwatch
from apex_agents.waits import NodeMemory, Wait

# Environment variables of a node: the descriptor of its end of a socket, the channel, which brings
# addresses and closes with the supervisor, that of the `NodeMemory` in which it tells everything,
# how often the node was restarted, and the addresses of the replays if they differ from those that
# the program was made with.
CHANNEL = "APEX_AGENTS_CHANNEL"
MEMORY = "APEX_AGENTS_MEMORY"
NUM_RESTARTS = "APEX_AGENTS_NUM_RESTARTS"
REPLAYS = "APEX_AGENTS_REPLAYS"
# The exit code of a node that has to be restarted, since its replay has a new address.
EXIT_MOVED = 233
_ABORT_SECONDS = 2.0


def entry_argv(job: int, index: int) -> list[str]:
    """Return the command of a node.

    Args:
      job: inherited descriptor of a file with the functions of all nodes, see `serialize_nodes`.
      index: position of the node's function in that file.
    """
    # Launchpad is located without importing it: an import defines flags and takes seconds.
    launchpad = importlib.util.find_spec("launchpad")
    assert launchpad is not None and launchpad.origin is not None
    entry = pathlib.Path(launchpad.origin).with_name("nodes") / "python" / "process_entry.py"
    return script_argv(
        str(entry),
        f"--data_file=/proc/self/fd/{job}",
        f"--lp_task_id={index}",
        # Launchpad does not end the process by itself: the supervisor kills a node that hangs.
        "--lp_termination_notice_secs=-1",
    )


class NodeCommand(NamedTuple):
    """How to run one node."""

    name: str
    argv: Sequence[str]  # The Python interpreter first.
    env: Mapping[str, str]  # In addition to the variables of this process.
    log: pathlib.Path  # All output is appended to it.
    fds: Sequence[int] = ()  # Descriptors that the process inherits.
    stop_seconds: float = 15.0  # Time that it may take to exit before it is killed.
    stops_last: bool = False  # Whether it is stopped only after all other nodes have exited.
    stopwatch: Stopwatch | None = None  # The run's; None: the node measures its own time.


class NodeStatus(NamedTuple):
    """State of a node, as `nodes.json` holds it."""

    pid: int | None  # The newest process; None before the first, or before a restart.
    is_alive: bool  # Whether that process lives.
    num_restarts: int  # In this run.
    host: str = ""  # See `NodeProcess`.
    exit_code: int | None = None  # See `Exit`; None while the process lives, too.
    waits_for: str = ""  # See `Wait`; '' unless it has waited for ten seconds.
    waiting_seconds: int = 0  # How long, a multiple of ten.


class Exit(NamedTuple):
    """How a process ended.

    `from_outside` says that the cause lies outside of the process (a signal, a lost host), so that
    another process may fare better.
    """

    description: str  # A predicate for the node's name.
    from_outside: bool
    exit_code: int | None = None  # Negative for a signal; None if it is unknown.


class NodeProcess(Protocol):
    """One process of a node, on this machine or on another host."""

    @property
    def pid(self) -> int | None:
        """Process id; None until it is known."""

    @property
    def host(self) -> str:
        """Name of its host; '' for this machine."""

    def poll(self) -> Exit | None:
        """Return how it ended, None while it lives."""

    def messages(self) -> bytes:
        """Return all messages so far, see `NodeMemory.say`."""

    def wait(self) -> Wait | None:
        """Return what it waits for, None if it does not wait."""

    def send(self, addresses: str) -> None:
        """Tell it the present addresses of the replays, separated by commas."""

    def suspend(self) -> None:
        """Stop it together with the processes that it has started (SIGSTOP)."""

    def resume(self) -> None:
        """Continue what `suspend` has stopped (SIGCONT)."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def abort(self) -> None:
        """Let it write into its log where its threads are, even if they hang, and end it."""

    def kill(self) -> None:
        """Kill it together with the processes that it has started, and wait for its end."""


class LocalNodeProcess:
    """A process on this machine; see `NodeProcess`."""

    host = ""

    def __init__(self, command: NodeCommand, num_restarts: int):
        """Start it, for a node that was restarted so often in this run.

        Raises:
          OSError: the log cannot be opened, or the system has no room for another process.
        """
        self._channel, other_end = socket.socketpair()
        self._channel.setblocking(False)
        env = {CHANNEL: str(other_end.fileno()), NUM_RESTARTS: str(num_restarts)}
        if command.stopwatch is not None:
            env[STARTED_AT] = str(command.stopwatch.started_at)
        with other_end, command.log.open("ab") as log, NodeMemory.share() as (self._memory, memory):
            env = {**os.environ, **command.env, **env, MEMORY: str(memory)}
            fds = [other_end.fileno(), memory, *command.fds]
            self._process = start_process(command.argv, env, log, fds)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> Exit | None:
        exit_code = self._process.poll()
        return None if exit_code is None else _describe(exit_code, self._memory.failure())

    def messages(self) -> bytes:
        return self._memory.messages()

    def wait(self) -> Wait | None:
        return self._memory.wait()

    def send(self, addresses: str) -> None:
        with contextlib.suppress(OSError):  # The process has ended.
            self._channel.send(f"{addresses}\n".encode())

    def suspend(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def abort(self) -> None:
        self._process.send_signal(signal.SIGABRT)  # absl has Python's `faulthandler` handle it.
        deadline = time.monotonic() + _ABORT_SECONDS
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        self._signal_all(signal.SIGKILL)
        self._process.wait()
        self._channel.close()

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)  # Each node has a session, whose number is its own.


def _describe(exit_code: int, failure: str) -> Exit:
    if exit_code == -signal.SIGKILL:
        description = "was killed (SIGKILL: by hand, or by the kernel when memory ran out)"
    elif exit_code < 0:
        description = f"was ended by {signal.Signals(-exit_code).name}"
    elif exit_code == EXIT_MOVED:
        description = "follows its replay to another host"
    elif exit_code == 0:
        description = "exited before the run's end"
    else:
        description = f"failed with exit code {exit_code}"
        description += failure and f" ({failure})"
    from_outside = exit_code in (0, EXIT_MOVED, -signal.SIGKILL, -signal.SIGTERM)
    return Exit(description, from_outside, exit_code=exit_code)


def reserve_port() -> socket.socket:
    """Take a free port, `getsockname()[1]`, until this socket is closed.

    A Reverb server shares its port with sockets that allow it, as this one does without ever
    accepting a connection. Processes that look for a free port find it taken, also while the server
    is restarted.
    """
    dual = socket.has_dualstack_ipv6()
    reservation = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if dual:
        reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reservation.bind(("", 0))
    return reservation
