"""What surrounds the function of a node: its process, its failure, its end."""

import contextlib
import ctypes
import functools
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import launchpad as lp
import tensorflow as tf
from launchpad import context

from apex_agents.experiment import Experiment
from apex_agents.nodes.process import CHANNEL, NUM_RESTARTS, STOP, WORKS
from apex_agents.replay.tables import RunClient

_PR_SET_NAME = 15

_TYPES_WITH_ONE_PROCESS = (
    context.LaunchType.LOCAL_MULTI_THREADING,
    context.LaunchType.TEST_MULTI_THREADING,
)

_channel: socket.socket | None = None  # To the supervisor, if this process has one.


class NodeRole(NamedTuple):
    """What a node may use of its machine, and how it stops.

    A node that computes may use GPUs and the learner's cores, with a thread on each of them; any
    other sees no GPU and uses one thread.
    """

    computes: bool = False
    stop_seconds: float = 15.0  # Time that it may take to stop.
    stops_last: bool = False  # Whether it runs until all other nodes have stopped.


class ClientNode(lp.PyNode):
    """A node that works with replay servers; `name` is the name of its files, too."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        experiment: Experiment,
        replay_addresses: Sequence[lp.Address],
        *args: Any,
        role: NodeRole = NodeRole(),  # noqa: B008  # Immutable.
    ):
        """Run `function(experiment, clients, *args)`, which returns when the program stops."""

        def connect_and_run() -> Any:
            return function(experiment, connect(replay_addresses, experiment), *args)

        super().__init__(run_node, name, connect_and_run, role, experiment.run.cpu_split)
        self.name = name
        self.role = role


def connect(addresses: Sequence[lp.Address], experiment: Experiment) -> list[RunClient]:
    """Return clients of a run's replay servers; Launchpad's handles would make ordinary ones."""
    return [RunClient(address.resolve(), experiment.run_id) for address in addresses]


def run_node(
    name: str, function: Callable[[], Any], role: NodeRole, cpu_split: float | None = None
) -> None:
    """Run the function of one node.

    A failure ends a process of the node's own with exit code 1, which its supervisor sees; without
    a supervisor it stops the program.

    Args:
      name: name of the node.
      function: the node's work, which returns when the program stops. What it returns is kept
        until the process ends: destroying a Reverb sampler can take half a minute.
      role: what the node may use, and how it stops.
      cpu_split: see `apex_agents.config.RunConfig`; ignored by nodes that share a process.

    Raises:
      RuntimeError: the node failed in a thread; names the node.
    """
    own_process = context.get_context().launch_type not in _TYPES_WITH_ONE_PROCESS
    if own_process:
        _attach_to_supervisor(role.stop_seconds)
        _name_process(name)
        limit_cores(role.computes, cpu_split)
    exit_code, result = 0, None
    try:
        result = function()
    except Exception as error:  # A failure of any kind has to be reported.
        failed = not lp.stop_event().is_set()  # Otherwise other nodes have stopped already.
        if failed and not own_process:
            raise RuntimeError(f"Node {name} failed: {type(error).__name__}: {error}") from error
        with contextlib.suppress(OSError):  # The log is on a full disk.
            traceback.print_exc()
        if failed and _channel is None:
            lp.stop()
        exit_code = int(failed)
    if own_process:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(exit_code)  # An ordinary exit waits for clients of a server that is gone.
    del result


@functools.cache  # Once is enough.
def report_ready() -> None:
    """Tell the supervisor, if there is one, that this node has begun its work."""
    _send(WORKS)


def stop_program() -> None:
    """Stop all nodes, through the supervisor if there is one."""
    if _channel is None:
        lp.stop()
    _send(STOP)


def is_supervised() -> bool:
    """Return whether a supervisor stops this node when its turn comes."""
    return _channel is not None


def num_restarts() -> int:
    """Return how often this node was restarted in this run."""
    return int(os.environ.get(NUM_RESTARTS, "0"))


def limit_cores(computes: bool, cpu_split: float | None) -> None:
    """Restrict this process to its cores, and TensorFlow to its threads; see `NodeRole`."""
    cores = sorted(os.sched_getaffinity(0))
    if cpu_split is not None:
        cores = select_cores(cores, computes, cpu_split)
        os.sched_setaffinity(0, cores)
    num_threads = len(cores) if computes else 1
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)


def select_cores(cores: list[int], computes: bool, cpu_split: float) -> list[int]:
    """Return the learner's share of some cores, or the other cores; at least one either way."""
    num_learner = max(1, round(cpu_split * len(cores)))
    return cores[:num_learner] if computes else cores[num_learner:] or cores


def _send(message: bytes) -> None:
    if _channel is not None:
        with contextlib.suppress(ConnectionError):
            _channel.send(message)


def _name_process(name: str) -> None:
    """Let tools such as `top` show the node's name, truncated by Linux to 15 characters."""
    with contextlib.suppress(OSError, AttributeError):  # Not Linux.
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _attach_to_supervisor(stop_seconds: float) -> None:
    """Open the channel; stop this node when the channel is closed, as the supervisor has died."""
    global _channel
    descriptor = os.environ.pop(CHANNEL, None)
    if descriptor is None:
        return
    channel = _channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)

    def stop_with_supervisor() -> None:
        with contextlib.suppress(ConnectionError):
            channel.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_seconds)  # Calls to a server that is gone cannot be interrupted.
        os._exit(1)

    threading.Thread(target=stop_with_supervisor, daemon=True).start()
