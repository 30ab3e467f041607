"""What surrounds the function of a node: its process, its failure, its way out."""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import launchpad as lp
from launchpad import context

from apex_agents.experiment import Experiment
from apex_agents.nodes.cores import limit_cores
from apex_agents.nodes.process import CHANNEL, NUM_RESTARTS, STOP, WORKS
from apex_agents.replay.tables import RunClient

_PR_SET_NAME = 15

_channel: socket.socket | None = None  # To the supervisor, if this process has one.
_is_ready = False


class ClientNode(lp.PyNode):
    """A node that works with the replay server.

    Attributes:
      name: of the node, and of its files.
      stop_seconds: how long it may take to leave.
      stops_last: whether it waits until the others have left.
    """

    stops_last = False

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        experiment: Experiment,
        replay_address: lp.Address,
        *args: Any,
        stop_seconds: float = 5.0,
    ):
        """Run `function(experiment, client, *args)`, which returns when the program stops."""
        # The address instead of Launchpad's handle, which would make an ordinary client.
        super().__init__(
            _run_client, name, stop_seconds, function, experiment, replay_address, *args
        )
        self.name = name
        self.stop_seconds = stop_seconds


def _run_client(
    name: str,
    stop_seconds: float,
    function: Callable[..., Any],
    experiment: Experiment,
    replay_address: lp.Address,
    *args: Any,
) -> None:
    def connect_and_run() -> Any:
        client = RunClient(replay_address.resolve(), experiment.run_id)
        return function(experiment, client, *args)

    run_node(name, connect_and_run, stop_seconds, experiment.run.cpu_split)


def run_node(
    name: str, function: Callable[[], Any], stop_seconds: float, cpu_split: float | None = None
) -> None:
    """Run the function of one node.

    In a process of its own, a failure ends the process with exit code 1, for the supervisor to see;
    without one it stops the program.

    Args:
      name: of the node.
      function: does the node's work and returns when the program stops; what it returns is never
        destroyed in a process of its own.
      stop_seconds: how long it may take to leave, once its supervisor is gone.
      cpu_split: see `apex_agents.config.RunConfig`; without a process of its own, none.

    Raises:
      RuntimeError: the node failed in a thread; names the node.
    """
    own_process = _has_own_process()
    if own_process:
        _attach_to_supervisor(stop_seconds)
        _name_process(name)
        limit_cores(name == "learner", cpu_split)
    exit_code = 0
    try:
        leftover = function()  # noqa: F841  # Kept: taking a Reverb sampler apart can take half a minute.
    except Exception as error:  # Whatever it is, somebody has to hear of it.
        if lp.stop_event().is_set():  # The others are leaving, too.
            _print_traceback()
        else:
            exit_code = 1
            _report_failure(name, error)
    if own_process:
        _leave(exit_code)


def report_ready() -> None:
    """Tell the supervisor, if there is one, that this node has begun its work."""
    global _is_ready
    if _channel is not None and not _is_ready:
        _is_ready = True
        with contextlib.suppress(ConnectionError):
            _channel.send(WORKS)


def stop_program() -> None:
    """Let all nodes leave: through the supervisor, if there is one."""
    if _channel is None:
        lp.stop()
        return
    with contextlib.suppress(ConnectionError):
        _channel.send(STOP)


def is_supervised() -> bool:
    """Return whether a supervisor stops this node, in its turn."""
    return _channel is not None


def num_restarts() -> int:
    """Return how often this node was started again in this run."""
    return int(os.environ.get(NUM_RESTARTS, "0"))


def _has_own_process() -> bool:
    return context.get_context().launch_type not in (
        context.LaunchType.LOCAL_MULTI_THREADING,
        context.LaunchType.TEST_MULTI_THREADING,
    )


def _name_process(name: str) -> None:
    """Let `top` and others show the node's name, as far as the system has room for it."""
    with contextlib.suppress(OSError, AttributeError):  # Not Linux.
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _attach_to_supervisor(stop_seconds: float) -> None:
    """Open the channel, and stop this node when it ends because the supervisor was killed."""
    global _channel
    descriptor = os.environ.pop(CHANNEL, None)
    if descriptor is None:
        return
    channel = _channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)

    def leave_with_supervisor() -> None:
        with contextlib.suppress(ConnectionError):
            channel.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_seconds)  # One that waits for a server that is gone cannot be woken up.
        os._exit(1)

    threading.Thread(target=leave_with_supervisor, daemon=True).start()


def _report_failure(name: str, error: Exception) -> None:
    if not _has_own_process():
        raise RuntimeError(f"Node {name} failed: {type(error).__name__}: {error}") from error
    _print_traceback()
    if _channel is None:
        lp.stop()


def _print_traceback() -> None:
    with contextlib.suppress(OSError):  # The disk with the log is full.
        traceback.print_exc()


def _leave(exit_code: int) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(exit_code)  # Clients of a server that is gone hold up an ordinary exit.
