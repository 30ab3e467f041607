"""What surrounds the function of a node: its process, its replays, its failure, its end."""

import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import launchpad as lp
import psutil
import reverb
import tensorflow as tf
from launchpad import context

from apex_agents.builder import Role
from apex_agents.experiment import Experiment
from apex_agents.nodes.fork_server import prctl
from apex_agents.nodes.host import keep_freed_memory
from apex_agents.nodes.process import (
    CHANNEL,
    EXIT_MOVED,
    MEMORY,
    NUM_RESTARTS,
    REPLAYS,
)
from apex_agents.replay.tables import RunClient, if_reachable
from apex_agents.waits import STOP, NodeMemory, Waiting, say, write_waits

_TYPES_WITH_ONE_PROCESS = (
    context.LaunchType.LOCAL_MULTI_THREADING,
    context.LaunchType.TEST_MULTI_THREADING,
)

_CHECK_SECONDS = 0.5
_ASK_SECONDS = 1
_NOTICE_SECONDS = 10.0
_NUM_NAMED = 3  # Servers.
_PROXY = "grpc_proxy"  # The environment variable that gRPC reads first.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # From <linux/prctl.h>.

_channel: socket.socket | None = None  # Leads to the supervisor, if this process has one.
# Waits of this process's nodes, by node name: one node, or all if nodes are threads.
memories: dict[str, NodeMemory] = {}
# Addresses of all replays as told by the supervisor; empty while those of the program hold.
_told_addresses: list[str] = []


class Replays(NamedTuple):
    """The replay servers of a program, which may move to other hosts of a cluster."""

    addresses: Sequence[lp.Address]
    run_id: str

    def connect(self, index: int | None = None, follows: bool = False) -> "ReplayClients":
        """Return clients of the servers.

        Args:
          index: index of the only server to connect to; None for all.
          follows: whether the node continues with a server that has moved; if not, it exits, so
            that it is restarted.
        """
        clients = ReplayClients(self, range(len(self.addresses)) if index is None else [index])
        if _told_addresses and not follows:
            threading.Thread(target=exit_when_moved, args=(clients,), daemon=True).start()
        return clients


class ReplayClients(Sequence[RunClient]):
    """Clients of replay servers at their present addresses: one that has moved has a new client.

    Launchpad's handles of the servers would make ordinary clients.
    """

    def __init__(self, replays: Replays, indices: Sequence[int]):
        """Connect to the servers with these indices."""
        self._replays = replays
        self._indices = indices
        self._clients = [RunClient(address, replays.run_id) for address in self._find_addresses()]

    def __len__(self) -> int:
        return len(self._clients)

    def __getitem__(self, index: Any) -> Any:
        for i, address in enumerate(self._find_addresses()):
            if self._clients[i].server_address != address:
                self._clients[i] = RunClient(address, self._replays.run_id)
        return self._clients[index]

    def _find_addresses(self) -> list[str]:
        told, addresses = _told_addresses, self._replays.addresses
        return [told[i] if told else addresses[i].resolve() for i in self._indices]


def exit_when_moved(
    clients: Sequence[RunClient], exit_process: Callable[[int], None] = os._exit
) -> None:
    """Wait until a server moves, and exit: this process may be inside a call to its old host."""
    used = list(clients)
    while list(clients) == used:
        time.sleep(_CHECK_SECONDS)
    exit_process(EXIT_MOVED)


def await_answer(clients: Sequence[reverb.Client], should_stop: Callable[[], bool]) -> bool:
    """Wait until one of some servers answers; return whether it does before told to stop."""
    addresses = [client.server_address for client in clients]
    others = " or others" if len(addresses) > _NUM_NAMED else ""
    named = " or ".join(addresses[:_NUM_NAMED]) + others
    what = f"an answer of the replay at {named}{_find_cause(addresses)}"
    with Waiting(what, _NOTICE_SECONDS):
        while not should_stop():
            for client in clients:
                if if_reachable(functools.partial(client.server_info, _ASK_SECONDS)) is not None:
                    return True
    return False


def _find_cause(addresses: Sequence[str]) -> str:
    """Return why servers may not be reached, in brackets, or ''."""
    is_local = all(address.startswith("localhost:") for address in addresses)
    loopback = psutil.net_if_stats().get("lo")
    if is_local and loopback is not None and not loopback.isup:
        return " (the loopback interface `lo` is down)"
    proxy = os.environ.get(_PROXY)
    if proxy and not is_local:
        return f" (connections go through {_PROXY}={proxy.rpartition('@')[2]})"
    return ""


class RoleNode(lp.PyNode):
    """A node of a role that works with replay servers."""

    def __init__(self, name: str, role: Role, experiment: Experiment, replays: Replays, index: int):
        """Run the role's function for the node with this index."""
        function = functools.partial(role.function, experiment, replays, index)
        super().__init__(run_node, name, function, role, experiment.run.cpu_split, index)
        self.name = name
        self.role = role


def run_node(
    name: str,
    function: Callable[[], Any],
    role: Role,
    cpu_split: float | None = None,
    index: int = 0,
) -> None:
    """Run the function of one node.

    A failure ends the node's process with exit code 1, which its supervisor sees; without
    a supervisor it stops the program.

    Args:
      name: name of the node.
      function: the node's work, which returns when the program stops. What it returns is kept
        until the process ends: destroying a Reverb sampler can take half a minute.
      role: what the node may use, and how it stops.
      cpu_split: see `apex_agents.config.RunConfig`; ignored by nodes that share a process.
      index: index of the node among those of its role.

    Raises:
      RuntimeError: the node failed in a thread; names the node.
    """
    own_process = context.get_context().launch_type not in _TYPES_WITH_ONE_PROCESS
    memory = memories[name] = _attach_memory()
    if own_process:
        _attach_to_supervisor(role)
        prctl(_PR_SET_NAME, name.encode())  # The name that `top` shows, up to 15 characters.
        # If the launcher dies while it has stopped this process, it continues, and exits.
        prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
        limit_cores(role, cpu_split, index)
        keep_freed_memory()
    exit_code, result = 0, None
    try:
        result = function()
    except (Exception, SystemExit) as error:  # A failure of any kind has to be reported.
        failed = not lp.stop_event().is_set()  # Otherwise other nodes have stopped already.
        if failed and not own_process:
            raise RuntimeError(f"Node {name} failed: {type(error).__name__}: {error}") from error
        logging.exception("The node failed.")  # It does not raise if the log is on a full disk.
        memory.fail(error)
        if failed and _channel is None:
            lp.stop()
        exit_code = int(failed)
    if own_process:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(exit_code)  # An ordinary exit waits for clients of a server that is gone.
    del result


def stop_program() -> None:
    """Stop all nodes, through the supervisor if there is one."""
    say(STOP)
    if _channel is None:
        lp.stop()


def is_supervised() -> bool:
    """Return whether a supervisor stops this node when its turn comes."""
    return _channel is not None


def num_restarts() -> int:
    """Return how often this node was restarted in this run."""
    return int(os.environ.get(NUM_RESTARTS, "0"))


def _attach_memory() -> NodeMemory:
    """Return the memory in which this thread writes what it waits for, the supervisor's if any."""
    descriptor = os.environ.pop(MEMORY, None)
    memory = NodeMemory() if descriptor is None else NodeMemory(int(descriptor))
    if descriptor is not None:
        os.close(int(descriptor))
    write_waits(memory)
    return memory


def _attach_to_supervisor(role: Role) -> None:
    """Open the channel; stop this node when the channel is closed, as the supervisor has died."""
    global _channel
    _take_addresses(os.environ.pop(REPLAYS, ""))
    descriptor = os.environ.pop(CHANNEL, None)
    if descriptor is None:
        return
    channel = _channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)

    def listen() -> None:
        for line in channel.makefile():
            _take_addresses(line)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(role.stop_seconds)  # Calls to a server that is gone cannot be interrupted.
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()


def _take_addresses(line: str) -> None:
    """Take over the addresses of all replays, if there are any in a line."""
    if line.strip():
        _told_addresses[:] = line.strip().split(",")


def limit_cores(role: Role, cpu_split: float | None, index: int = 0) -> None:
    """Restrict this process to its cores, and TensorFlow to its threads; see `builder.Role`."""
    cores = sorted(os.sched_getaffinity(0))
    num_sharing = role.num_nodes or 1
    if cpu_split is not None:
        cores = select_cores(cores, role.computes, cpu_split)
        if role.computes:  # Each of several learners has an equal part, if there are enough.
            cores = cores[index % len(cores) :: num_sharing]
        os.sched_setaffinity(0, cores)
    elif role.computes:
        cores = cores[: max(len(cores) // num_sharing, 1)]
    num_threads = len(cores) if role.computes else 1
    with contextlib.suppress(RuntimeError):  # User code may have made a tensor already.
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)


def select_cores(cores: list[int], computes: bool, cpu_split: float) -> list[int]:
    """Return the learner's share of some cores, or the other cores; at least one either way."""
    num_learner = max(1, round(cpu_split * len(cores)))
    return cores[:num_learner] if computes else cores[num_learner:] or cores
