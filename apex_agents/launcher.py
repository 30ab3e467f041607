"""Runs an experiment's program on a backend, shows its progress, and reports how it ended."""

import contextlib
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import launchpad as lp
from rich import filesize

from apex_agents.callbacks import EvaluationCallback, EvaluationRecord
from apex_agents.checks import check_experiment
from apex_agents.ending import (
    Run,
    RunFailure,
    conclude,
    describe_ended,
    describe_failure,
    describe_summary,
    find_ended,
)
from apex_agents.environments import describe_actions
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_TERMINATED
from apex_agents.experiment import Experiment
from apex_agents.extras import missing_extra
from apex_agents.initial_run import find_initial, start_with
from apex_agents.metrics import columns
from apex_agents.metrics.exports import Export, TensorBoardExport, WandbExport
from apex_agents.metrics.monitor import Monitor, make_view
from apex_agents.metrics.run_state import RunState
from apex_agents.metrics.summary import git_commit
from apex_agents.nodes.backend import Backend, Launch, LocalBackend, Outcome, ThreadBackend
from apex_agents.nodes.fork_server import close_server
from apex_agents.nodes.host import available_memory, memory_warning
from apex_agents.plotting import draw_run
from apex_agents.program import make_program
from apex_agents.replay.messages import Evaluation
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.opening import close_workdir, open_run, warning_of_resumption
from apex_agents.runs.workdir import TENSORBOARD

LAUNCH_TYPES = ("local_mp", "local_mt", "ray")

_SECOND = "press Ctrl-C again to kill all processes."
_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGTSTP),
    *(signal.SIGCONT, signal.SIGQUIT, signal.SIGALRM),
)


def launch(  # noqa: PLR0913
    experiment: Experiment,
    backend: Backend,
    is_live: bool,
    wandb: str | None,
    exports: Sequence[Export] = (),
    initial_run: str | pathlib.Path | None = None,
    on_evaluation: Callable[[EvaluationRecord], Any] | None = None,
) -> Run:
    """Train the agent of an experiment on a backend, see `training.train`."""
    spec = check_experiment(experiment)
    check_metrics(experiment)
    experiment = experiment.with_spec(spec)
    ended = find_ended(experiment)
    if ended is not None:
        _print_line(describe_ended(ended, experiment.run))
        for export in exports:
            export.close()
        return ended
    initial = find_initial(experiment, initial_run) if initial_run else None
    replay_bytes = experiment.builder.estimate_replay_bytes(spec)
    if backend.is_local:
        _warn(memory_warning(experiment.data_flow(), replay_bytes, available_memory()))
    else:
        close_server()  # It forks processes of this machine only.
    backend.prepare(experiment)
    experiment = open_run(experiment)
    for note in [*describe_actions(spec), *experiment.notes]:
        print(f"note: {note}", file=sys.stderr)
    try:
        _warn(warning_of_resumption(experiment))
        start_with(initial, pathlib.Path(experiment.workdir))
        if initial is not None:
            _print_line(f"Starting with the networks and optimizers of {initial.path}.")
        if backend.is_local:
            _print_checkpoint_size(experiment, replay_bytes)
        exports = [*_open_exports(experiment, wandb), *exports]
        program = make_program(experiment)
        return launch_program(program, experiment, backend, is_live, exports, on_evaluation)
    finally:
        close_workdir(experiment.workdir)


def check_metrics(experiment: Experiment) -> None:
    """Raise a ValueError if a number of `info` has the name of another column."""
    names = experiment.config.environment.metrics if experiment.config else ()
    taken = {value for value in vars(columns).values() if isinstance(value, str)}
    taken = (taken | {*Evaluation._fields}) - {columns.IS_SUCCESS}
    if clash := [name for name in names if name in taken]:
        raise ValueError(
            f"environment.metrics names {clash[0]!r}, which is another column of the logs; let the "
            "environment call it differently."
        )


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
    on_evaluation: Callable[[EvaluationRecord], Any] | None = None,
) -> Run:
    """Run a program to its end, draw the run and print its summary.

    Args:
      program: program made by `program.make_program`.
      experiment: experiment that it was made from.
      backend: place where its nodes run; `prepare` has been called.
      is_live: whether to show a live view if the output is a terminal; plain lines otherwise.
      exports: receivers of the rows of the CSV files; closed in the end.
      on_evaluation: see `training.train`.

    Returns:
      The run, which is over, or was stopped by SIGINT.

    Raises:
      RunFailure: a node failed, or the run ended before its first learner step.
      SystemExit: the run was stopped by SIGTERM.
      Exception: what `on_evaluation` raised.
    """
    git_commit()  # Cached: the commit of the code that is about to run.
    _print_line(f"Run folder: {experiment.workdir}")
    if experiment.resumed_at.learner_steps:
        _print_line(f"Resuming from learner step {experiment.resumed_at.learner_steps:,}.")
    state = RunState(RunFolder(experiment.workdir), experiment.elapsed_seconds)
    callback = EvaluationCallback(
        on_evaluation or (lambda record: None), pathlib.Path(experiment.workdir)
    )
    monitor = Monitor(state, make_view(is_live, _print_line), [*exports, callback])

    def on_interrupt() -> None:
        callback.is_stopping = True  # A second signal would kill the nodes.
        cause = callback.cause
        note = f"Stopping{f', since {cause}' if cause else ''}; {_SECOND}"
        if monitor.is_live:
            monitor.note = note
            return
        with contextlib.suppress(OSError):  # Not print, which the signal may have interrupted.
            os.write(1, f"\n{note}\n".encode())

    with _restoring_handlers():
        try:
            outcome = backend.run(Launch(program, experiment, _print_line, on_interrupt))
        except ValueError as error:
            outcome = Outcome(str(error))
        finally:
            callback.is_stopping = True
            with _restoring_handlers(), contextlib.suppress(KeyboardInterrupt):
                for number in (signal.SIGINT, signal.SIGTERM):  # They end this wait only.
                    signal.signal(number, signal.default_int_handler)
                monitor.close(lambda: callback.is_busy)
        if callback.error is not None:
            outcome = outcome._replace(failure=callback.cause)
        run = conclude(state, outcome, callback.reason)
        if run.exit_code != EXIT_FAILURE and not outcome.is_killed:
            _draw(run.folder)
    _print_line()
    if callback.error is not None:
        raise callback.error
    if run.exit_code == EXIT_FAILURE:
        raise RunFailure(describe_failure(run, experiment, outcome))
    for line in describe_summary(run.summary):
        _print_line(line)
    if run.exit_code == EXIT_TERMINATED:
        raise SystemExit(EXIT_TERMINATED)
    return run


@contextlib.contextmanager
def _restoring_handlers() -> Iterator[None]:
    """Restore the handlers of signals, which belong to the program that trains."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _draw(folder: pathlib.Path) -> None:
    """Draw the run; SIGINT ends the drawing, and SIGTERM the program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        paths = draw_run(str(folder))
    except (Exception, KeyboardInterrupt) as error:  # The run has ended, its results are saved.
        _print_line(f"The figures could not be drawn: {type(error).__name__}: {error}")
        return
    if paths:
        _print_line(f"Figures: {paths[0].parent}")


def _print_checkpoint_size(experiment: Experiment, replay_bytes: int) -> None:
    period = experiment.run.replay_checkpoint_period_seconds
    if period is not None:
        free = shutil.disk_usage(experiment.workdir).free
        _print_line(
            f"The replay is saved every {period:g} s and at the end: up to "
            f"{filesize.decimal(replay_bytes)} each time, twice that while the previous checkpoint "
            f"exists; {filesize.decimal(free)} of the disk are free."
        )


def _open_exports(experiment: Experiment, wandb: str | None) -> list[Export]:
    exports: list[Export] = [TensorBoardExport(pathlib.Path(experiment.workdir, TENSORBOARD))]
    if wandb is not None:
        export = WandbExport(RunFolder(experiment.workdir), wandb, experiment.run_id)
        _print_line(f"Weights & Biases: {export.place}")
        exports.append(export)
    return exports


def _warn(warning: str | None) -> None:
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)


def _print_line(text: object = "") -> None:
    """Print a line, with '?' for letters that the output does not have."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # The output is a file on a full disk, or is closed; the run continues.
    with contextlib.suppress(OSError, ValueError):
        print(str(text).encode(encoding, "replace").decode(encoding), flush=True)
