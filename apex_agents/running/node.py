"""What surrounds the function of a node: its log file, its failure, its way out."""

import json
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp
import psutil
import reverb
import tensorflow as tf
from launchpad import context

from apex_agents.experiment import Experiment
from apex_agents.running.workdir import FAILURE_FILE

# Environment variable that tells a node's process who launched it.
LAUNCHER_PID = "APEX_AGENTS_LAUNCHER_PID"

_LAUNCHER_CHECK_SECONDS = 1
# A node that waits for a server which is gone cannot be woken up; Launchpad kills everything,
# itself too, 10 s after the stop.
_LEAVE_WITHIN_SECONDS = 5
# The others finish what they are sending before the replay server goes away.
_REPLAY_LINGERS_SECONDS = 1


def run_client_node(
    name: str,
    function: Callable[..., Any],
    experiment: Experiment,
    replay_address: lp.Address,
    *args: Any,
) -> None:
    """Run a node that works with the replay server, as `function(experiment, client, *args)`."""

    def connect_and_run() -> Any:
        return function(experiment, reverb.Client(replay_address.resolve()), *args)

    run_node(name, experiment.workdir, connect_and_run)


def run_node(name: str, workdir: str, function: Callable[[], Any]) -> None:
    """Run the function of one node.

    In a process of its own, its output goes to `logs/<name>.log` and TensorFlow takes one thread
    unless the node learns. A failure is written down for the launcher, and stops the program.

    Args:
      name: of the node.
      workdir: folder of the run.
      function: does the node's work and returns when the program stops; what it returns is never
        destroyed in a process of its own.
    """
    own_process = _has_own_process()
    if own_process:
        redirect_output(name, workdir)
        _leave_in_time()
        _leave_with_launcher()
        if name != "learner":
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
    exit_code = 0
    try:
        leftover = function()  # noqa: F841  # Kept: taking a Reverb sampler apart can take half a minute.
    except Exception as error:  # Whatever it is: the run must not go on without this node.
        if not lp.stop_event().is_set():
            exit_code = 1
            _report_failure(name, workdir, error)
            lp.stop()
    if own_process:
        sys.stdout.flush()
        os._exit(exit_code)  # Clients of a server that is gone hold up an ordinary exit.


class ReplayNode(lp.ReverbNode):
    """A Reverb server with a log file, which is the last to leave."""

    def __init__(
        self,
        make_tables: Callable[[Experiment], Sequence[reverb.Table]],
        experiment: Experiment,
    ):
        """Remember how to make the tables."""
        super().__init__(lambda: make_tables(experiment))
        self._workdir = experiment.workdir

    def run(self) -> None:
        """Serve until the program stops."""
        run_node("replay", self._workdir, self._serve)

    def _serve(self) -> reverb.Server:
        port = lp.get_port_from_address(self.reverb_address.resolve())
        server = reverb.Server(tables=self._priority_tables_fn(), port=port)
        lp.stop_event().wait()
        time.sleep(_REPLAY_LINGERS_SECONDS)
        server.stop()
        return server  # Kept: taking a table of a million transitions apart takes ten seconds.


def redirect_output(name: str, workdir: str) -> None:
    """Send everything this process prints, C++ libraries included, to `logs/<name>.log`."""
    log = pathlib.Path(workdir, "logs", f"{name}.log").open("a", buffering=1)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log.fileno(), stream.fileno())


def _has_own_process() -> bool:
    return context.get_context().launch_type not in (
        context.LaunchType.LOCAL_MULTI_THREADING,
        context.LaunchType.TEST_MULTI_THREADING,
    )


def _leave_in_time() -> None:
    # Python runs signal handlers in the main thread, which may be stuck inside a call to a server
    # that is gone; the wakeup descriptor is written to wherever that thread is.
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender)

    def leave() -> None:
        while os.read(receiver, 1)[0] != signal.SIGTERM:
            pass
        time.sleep(_LEAVE_WITHIN_SECONDS)
        os._exit(0)

    threading.Thread(target=leave, daemon=True).start()


def _leave_with_launcher() -> None:
    """Stop this node when the launcher is gone, killed or with its terminal closed."""
    launcher_pid = os.environ.get(LAUNCHER_PID)
    if launcher_pid is None:
        return

    def watch() -> None:
        while _is_alive(int(launcher_pid)):
            time.sleep(_LAUNCHER_CHECK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _report_failure(name: str, workdir: str, error: Exception) -> None:
    traceback.print_exc()
    failure = {"node": name, "error": f"{type(error).__name__}: {error}"}
    path = pathlib.Path(workdir, FAILURE_FILE)
    if not path.exists():  # The first failure is the cause of the others.
        path.write_text(json.dumps(failure))
