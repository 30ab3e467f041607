"""Launches a program, here or on a cluster, shows how it goes, and says how it ended."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import launchpad as lp

from apex_agents.experiment import Experiment
from apex_agents.metrics.exports import Export
from apex_agents.metrics.monitor import Monitor, make_view
from apex_agents.metrics.run_state import RunState
from apex_agents.nodes.local import LocalBackend
from apex_agents.nodes.process import NodeStatus
from apex_agents.nodes.supervisor import NodeFailure, Supervisor
from apex_agents.plotting import draw_run
from apex_agents.runs.checkpoints import find_checkpoint
from apex_agents.runs.files import write_json
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import CHECKPOINTS, NODES_FILE, SUMMARY_FILE

if TYPE_CHECKING:
    from apex_agents.cluster.backend import RayBackend

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it.
EXIT_TERMINATED = 143  # 128 + SIGTERM.

_NUM_LOG_LINES = 15
_STOPPING = "Stopping; press Ctrl-C again to end everything at once."


def launch_program(
    program: lp.Program,
    experiment: Experiment,
    launch_type: str,
    is_live: bool = True,
    exports: Sequence[Export] = (),
) -> int:
    """Run a program to its end.

    Args:
      program: made by `program.make_program`.
      experiment: what it was made from.
      launch_type: 'local_mp' (a process per node, started again when it dies), 'ray' (the same on
        the hosts of the cluster that this process is connected to) or 'local_mt' (a thread per
        node).
      is_live: whether to show a live view, if the output is a terminal, or plain lines.
      exports: where the rows of the CSV files are passed on to; closed in the end.

    Returns:
      The exit code: 0 when the run reached its end, 1 when a node failed, 130 after Ctrl-C, 143
      after SIGTERM.
    """
    _print_line(f"Run folder: {experiment.workdir}")
    _resume(experiment)
    try:
        processes = _make_processes(program, experiment, launch_type)
    except ValueError as error:
        return _conclude(experiment, str(error), interrupted=False)
    state = RunState(RunFolder(experiment.workdir))
    monitor = Monitor(state, make_view(is_live, _print_line), exports)
    if processes is None:
        failure, num_interrupts = _run_threads(program, experiment)
    else:
        failure, num_interrupts = _run_processes(processes, experiment, monitor)
    monitor.close()
    is_finished = (state.summary or {}).get("finished")
    if num_interrupts == 1 or (is_finished and not num_interrupts):
        _draw(experiment)
    return _conclude(experiment, failure, interrupted=num_interrupts > 0)


def _resume(experiment: Experiment) -> None:
    """Take up the counts of the newest checkpoint; the learner restores the rest."""
    checkpoint = find_checkpoint(pathlib.Path(experiment.workdir, CHECKPOINTS))
    if checkpoint is not None:
        experiment.resumed_at = checkpoint.progress
        steps = f"learner step {checkpoint.progress.learner_steps:,}"
        _print_line(f"Going on from {steps} ({checkpoint.path.name}).")


def _run_processes(
    processes: "LocalBackend | RayBackend", experiment: Experiment, monitor: Monitor
) -> tuple[str | None, int]:
    """Run the nodes as processes; return what failed, if something did, and how many Ctrl-C."""
    run = experiment.run
    nodes_file = pathlib.Path(experiment.workdir, NODES_FILE)

    def record(nodes: Mapping[str, NodeStatus]) -> None:
        write_json(nodes_file, {name: status._asdict() for name, status in nodes.items()})

    supervisor = Supervisor(
        processes.commands,
        run.max_restarts,
        run.restart_window_seconds,
        _print_line,
        record,
        processes.start,
    )
    num_interrupts = 0

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal num_interrupts
        num_interrupts += 1
        if num_interrupts == 1:
            supervisor.stop()
            if monitor.is_live:
                monitor.note = _STOPPING
                return
            with contextlib.suppress(OSError):  # Not print: it may be what was interrupted.
                os.write(1, f"\n{_STOPPING}\n".encode())
        else:
            supervisor.kill()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, lambda signum, frame: supervisor.stop())
    failure = supervisor.run()
    processes.close()
    return failure and _describe(failure), num_interrupts


def _make_processes(
    program: lp.Program, experiment: Experiment, launch_type: str
) -> "LocalBackend | RayBackend | None":
    """Prepare the nodes' processes, if they are to have some; a ValueError says what is missing."""
    if launch_type == "local_mt":
        return None
    if launch_type == "ray":
        from apex_agents.cluster.backend import RayBackend  # An extra.

        return RayBackend(program, experiment, _print_line)
    return LocalBackend(program, experiment.workdir)


def _describe(failure: NodeFailure) -> str:
    """Say which node failed, and how its output ends."""
    lines: Iterable[str] = ()
    with contextlib.suppress(OSError), failure.log.open(errors="replace") as log:
        lines = collections.deque(log, maxlen=_NUM_LOG_LINES)
    end = "".join(f"  | {line.rstrip()}\n" for line in lines) or "  (nothing)\n"
    return f"Node {failure.node} {failure.reason}. {failure.log} ends with:\n{end.rstrip()}"


def _run_threads(program: lp.Program, experiment: Experiment) -> tuple[str | None, int]:
    """Run the nodes as threads of this process, in Launchpad's way; return as the other does."""
    pathlib.Path(experiment.workdir, NODES_FILE).unlink(missing_ok=True)
    manager = lp.launch(program, launch_type="local_mt")
    interrupted = _watch_for_interrupt()
    failure = None
    try:
        manager.wait(return_on_first_completed=True)
    except RuntimeError as error:  # Of `node.run_node`; names the node.
        failure = str(error)
    os.kill(os.getpid(), signal.SIGTERM)  # As `lp.stop` does in the nodes.
    manager.wait(raise_error=False)
    return failure, int(interrupted.is_set())


def _watch_for_interrupt() -> threading.Event:
    """Note Ctrl-C, and let Launchpad stop the nodes as it does anyway."""
    interrupted = threading.Event()
    launchpad_handler: Any = signal.getsignal(signal.SIGINT)

    def handle(signum: int, frame: Any) -> None:
        interrupted.set()
        launchpad_handler(signum, frame)

    signal.signal(signal.SIGINT, handle)
    return interrupted


def _draw(experiment: Experiment) -> None:
    """Draw the run; Ctrl-C ends the command meanwhile."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        paths = draw_run(experiment.workdir)
    except Exception as error:  # The run is over and all that counts is saved.
        _print_line(f"The figures could not be drawn: {type(error).__name__}: {error}")
        return
    if paths:
        _print_line(f"Figures: {paths[0].parent}")


def _conclude(experiment: Experiment, failure: str | None, interrupted: bool) -> int:
    """Print how the run ended and return the exit code."""
    path = pathlib.Path(experiment.workdir, SUMMARY_FILE)
    summary = json.loads(path.read_text()) if path.exists() else {}
    _print_line()
    if failure:
        _print_line(failure)
        return EXIT_FAILURE
    for name, value in summary.items():
        _print_line(f"{name.replace('_', ' '):>18}: {value}")
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SUCCESS if summary.get("finished") else EXIT_TERMINATED


def _print_line(text: str = "") -> None:
    with contextlib.suppress(OSError):  # A file on a full disk: the run goes on.
        print(text, flush=True)
