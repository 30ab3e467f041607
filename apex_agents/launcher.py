"""Runs a program on a backend, shows its progress, and reports how it ended."""

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp

from apex_agents.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_TERMINATED
from apex_agents.experiment import Experiment
from apex_agents.extras import missing_extra
from apex_agents.metrics.exports import Export
from apex_agents.metrics.monitor import Monitor, make_view
from apex_agents.metrics.run_state import RunState
from apex_agents.nodes.backend import Backend, Launch, Outcome
from apex_agents.nodes.local import LocalBackend, ThreadBackend
from apex_agents.plotting import draw_run
from apex_agents.runs.folder import RunFolder

LAUNCH_TYPES = ("local_mp", "local_mt", "ray")

_STOPPING = "Stopping; press Ctrl-C again to kill all processes."


def make_backend(launch_type: str, ray_address: str = "auto") -> Backend:
    """Choose where nodes run.

    Args:
      launch_type: 'local_mp', a process per node; 'local_mt', a thread per node; or 'ray', a
        process per node on the hosts of a Ray cluster.
      ray_address: 'HOST:PORT' of the cluster's head, or 'auto' for this machine's cluster.

    Raises:
      ValueError: the launch type is unknown, or its package is not installed.
    """
    if launch_type == "local_mp":
        return LocalBackend()
    if launch_type == "local_mt":
        return ThreadBackend()
    if launch_type != "ray":
        raise ValueError(f"launch_type is {launch_type!r}; it has to be one of {LAUNCH_TYPES}.")
    try:
        from apex_agents.cluster.backend import RayBackend  # Ray is an extra.
    except ImportError as error:
        raise missing_extra("ray", "--lp_launch_type=ray") from error
    return RayBackend(ray_address)


def launch_program(
    program: lp.Program,
    experiment: Experiment,
    backend: Backend,
    is_live: bool = True,
    exports: Sequence[Export] = (),
) -> int:
    """Run a program to its end.

    Args:
      program: program made by `program.make_program`.
      experiment: experiment that it was made from.
      backend: place where its nodes run; `prepare` has been called.
      is_live: whether to show a live view if the output is a terminal; plain lines otherwise.
      exports: receivers of the rows of the CSV files; closed in the end.

    Returns:
      Exit code: 0 after the run's end, 1 if a node failed, 130 after SIGINT, 143 after SIGTERM.
    """
    _print_line(f"Run folder: {experiment.workdir}")
    if experiment.resumed_at.learner_steps:
        _print_line(f"Resuming from learner step {experiment.resumed_at.learner_steps:,}.")
    folder = RunFolder(experiment.workdir)
    monitor = Monitor(RunState(folder), make_view(is_live, _print_line), exports)

    def on_interrupt() -> None:
        if monitor.is_live:
            monitor.note = _STOPPING
            return
        with contextlib.suppress(OSError):  # Not print, which the signal may have interrupted.
            os.write(1, f"\n{_STOPPING}\n".encode())

    try:
        outcome = backend.run(Launch(program, experiment, _print_line, on_interrupt))
    except ValueError as error:
        outcome = Outcome(str(error), 0)
    finally:
        monitor.close()
    summary = folder.summary() or {}
    if outcome.num_interrupts == 1 or (summary.get("finished") and not outcome.num_interrupts):
        _draw(experiment)
    return conclude(summary, outcome)


def conclude(summary: Mapping[str, Any], outcome: Outcome) -> int:
    """Print how a run ended, and return the exit code of its command."""
    _print_line()
    if outcome.failure:
        _print_line(outcome.failure)
        return EXIT_FAILURE
    for name, value in summary.items():
        _print_line(f"{name.replace('_', ' '):>18}: {value}")
    if outcome.num_interrupts:
        return EXIT_INTERRUPTED
    return EXIT_SUCCESS if summary.get("finished") else EXIT_TERMINATED


def _draw(experiment: Experiment) -> None:
    """Draw the run; SIGINT ends the command meanwhile."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        paths = draw_run(experiment.workdir)
    except Exception as error:  # The run has ended, and its results are saved.
        _print_line(f"The figures could not be drawn: {type(error).__name__}: {error}")
        return
    if paths:
        _print_line(f"Figures: {paths[0].parent}")


def _print_line(text: object = "") -> None:
    with contextlib.suppress(OSError):  # The output is a file on a full disk; the run continues.
        print(text, flush=True)
