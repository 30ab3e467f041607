"""The end of a run: its summary, its exit code, failures, and the commands to use next."""

import os
import pathlib
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from apex_agents.config import RunConfig, reaches
from apex_agents.environments import record_spec
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_TERMINATED
from apex_agents.experiment import Experiment
from apex_agents.metrics import columns
from apex_agents.metrics.run_state import RunState
from apex_agents.metrics.summary import NOT_SAVED, complete_summary, git_commit
from apex_agents.nodes.backend import Outcome
from apex_agents.plotting import PLOTS
from apex_agents.registry import AGENTS
from apex_agents.runs.config_file import CONFIG_FILE, check_same_run, check_same_spec
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import SUMMARY_FILE

# Limits of a run, and the entries of its summary that they limit.
_LIMITS = {
    "max_actor_steps": columns.ACTOR_STEPS,
    "max_learner_steps": columns.LEARNER_STEPS,
    "max_seconds": columns.WALL_TIME_SECONDS,
    "target_return": "last_return",
}
# Summary fields that are not printed.
_NOT_PRINTED = ("date", "versions", "git_commit", "command", "exit_code")


class Run(NamedTuple):
    """A run that is over, or was stopped."""

    folder: pathlib.Path  # Folder with its logs and checkpoints.
    summary: dict[str, Any]  # What `summary.json` in it holds: `finished`, `reason`, ...
    exit_code: int  # 0 after the run's end, 130 after Ctrl-C.


class RunFailure(RuntimeError):
    """A run failed: one of its nodes did, or nothing was learned."""


def find_ended(experiment: Experiment) -> Run | None:
    """Return the run in an experiment's folder if it has ended, and would end again at once.

    Raises:
      ValueError: the run is that of a different experiment, or of an environment with a different
        spec.
    """
    workdir = pathlib.Path(os.path.expanduser(experiment.workdir)).absolute()
    is_named = experiment.workdir and experiment.config is not None
    if not is_named or not os.path.exists(workdir / CONFIG_FILE):
        return None
    folder = RunFolder(workdir)
    summary = folder.summary() or {}
    if not summary.get("finished") or folder.is_running():
        return None
    check_same_run(workdir, experiment.config)
    check_same_spec(workdir, record_spec(experiment.environment_spec()))
    run = Run(workdir, summary, EXIT_SUCCESS)
    return run if _reached_limits(run, experiment.run) else None


def describe_ended(run: Run, config: RunConfig) -> str:
    """Return a sentence on a run that `find_ended` has found, and how it can continue."""
    summary, limits = run.summary, " and ".join(_reached_limits(run, config))
    return (
        f"The run in {run.folder} has ended ({summary['reason']}) with "
        f"{summary[columns.ACTOR_STEPS]:,} actor steps, {summary[columns.LEARNER_STEPS]:,} learner "
        f"steps and {summary[columns.WALL_TIME_SECONDS]:,.0f} s; to continue it, raise {limits}."
    )


def _reached_limits(run: Run, config: RunConfig) -> list[str]:
    """Return the limits of a config that a run has reached: paths of fields, with their values."""
    pairs = {
        limit: (run.summary.get(name), getattr(config, limit)) for limit, name in _LIMITS.items()
    }
    return [
        f"run.{limit}, which is {value:,}"
        for limit, (done, value) in pairs.items()
        if done is not None and value is not None and reaches(done, value)
    ]


def conclude(state: RunState, outcome: Outcome, reason: str = "") -> Run:
    """Complete the summary of a run whose nodes have ended.

    Args:
      state: state of the run, which is brought up to date.
      outcome: how the nodes ended.
      reason: why the user's program has ended the run with the signal of Ctrl-C, if it has.

    Returns:
      The run; its exit code is 1 if it failed, 143 if it was stopped by SIGTERM.
    """
    state.refresh()  # The monitor may have waited for an export.
    written = state.run.summary() or {}
    if written.get("reason") == NOT_SAVED:
        outcome = outcome._replace(failure=outcome.failure or NOT_SAVED)
    if not written and state.learner and outcome.stopped_by is None and not outcome.failure:
        failure = f"The run has ended, but {SUMMARY_FILE} could not be written."
        outcome = outcome._replace(failure=failure)
    is_over = written.get("finished", False)
    command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    changes: dict[str, Any] = {"git_commit": git_commit(), "command": command}
    exit_code = EXIT_SUCCESS if is_over else EXIT_TERMINATED
    if outcome.stopped_by == signal.SIGINT:
        exit_code = EXIT_INTERRUPTED
    if reason and written:
        exit_code = EXIT_SUCCESS
        changes |= {"finished": True, "reason": reason}
    elif not is_over:
        stop = "SIGINT (Ctrl-C)" if exit_code == EXIT_INTERRUPTED else "SIGTERM"
        changes["reason"] = f"stopped by {stop}"
    if outcome.failure:
        exit_code = EXIT_FAILURE
        changes |= {"finished": False, "reason": outcome.failure}
    elif is_over and not written["learner_steps"]:
        exit_code = EXIT_FAILURE
        reason = f"{written['reason']} before the first learner step"
        changes |= {"finished": False, "reason": reason}
    summary = complete_summary(state, {**changes, "exit_code": exit_code})
    return Run(state.run.path, summary, exit_code)


def describe_failure(run: Run, experiment: Experiment, outcome: Outcome) -> str:
    """Return why a run with the exit code 1 failed, as lines for the terminal."""
    if outcome.failure or run.summary["learner_steps"]:
        return "\n".join(filter(None, (run.summary["reason"], outcome.log)))
    flow, actor_steps = experiment.data_flow(), run.summary["actor_steps"]
    advice = "The learner had not finished its first step, with which it compiles. Raise the limit."
    if actor_steps <= flow.usual_min_steps:
        advice = f"The learner starts at {flow.usual_min_steps:,}, by {flow.min_size_field}. "
        advice += "Lower that, or raise the limit."
    return (
        f"The run ended before its first learner step, and nothing was learned: "
        f"{run.summary['reason']}. The actors sent {actor_steps:,} steps. {advice}"
    )


def describe_summary(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a summary for the terminal, with few digits after the point."""
    for name, value in summary.items():
        if name not in _NOT_PRINTED and value is not None:
            shown = _show(value) if isinstance(value, float) else value
            yield f"{name.replace('_', ' '):>18}: {shown}"


def _show(value: float) -> str:
    """Format a number with four significant digits, or more if it has them before the point."""
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def describe_next_steps(
    agent: str, folder: pathlib.Path, settings: str, program: str
) -> Iterator[str]:
    """Yield lines for the terminal; none if the command was started by another one, as in studies.

    Args:
      agent: name of the agent that was trained.
      folder: folder of the run.
      settings: name of the settings; after those of the agent's first run another task is named.
      program: first word of the command line, `sys.argv[0]`.
    """
    script = pathlib.Path(program)
    if script.stem not in (agent, f"apex-{agent.removeprefix('apex_')}"):
        return
    run = shlex.quote(_shorten(str(folder)))
    steps = {
        "evaluate": f"{_command(script, 'evaluate')} {run}",
        "plot": f"{_command(script, 'plot')} {run}  # or several runs, in one figure",
    }
    figure = folder / PLOTS / "returns.png"
    if figure.exists():
        steps = {"figure": _shorten(str(figure)), **steps}
    if settings == AGENTS[agent].default_config:
        task, flags = AGENTS[agent].next_task
        steps[task] = f"{_command(script, agent)} {flags}"
    yield "What to do next:"
    for name, step in steps.items():
        yield f"{name:>18}: {step}"


def _command(script: pathlib.Path, name: str) -> str:
    """Return the command of a name, `evaluate` or `apex_dqn`, that lies beside a script."""
    if script.suffix == ".py":
        beside = str(script.with_name(f"{name}.py"))
        return f"{shlex.quote(_shorten(sys.executable))} {shlex.quote(beside)}"
    beside = str(script.with_name(f"apex-{name.removeprefix('apex_')}"))
    return shlex.quote(_shorten(beside))


def _shorten(path: str) -> str:
    """Return how a path is written in the current folder: as a program's name where that is it."""
    name = os.path.basename(path)
    if shutil.which(name) == path:
        return name
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative
