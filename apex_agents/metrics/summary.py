"""The summary of a run: its end, steps, returns, and the version of the code.

The learner writes `summary.json` when it finishes or is stopped. The launcher completes the file,
also if the learner could not write it.
"""

import datetime
import functools
import importlib.metadata
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np

from apex_agents.experiment import Experiment
from apex_agents.metrics import columns
from apex_agents.metrics.run_state import RunState, number
from apex_agents.runs.files import remove, write_json
from apex_agents.runs.workdir import SUMMARY_FILE

_DISTRIBUTIONS = ("apex_agents", "tensorflow", "dm-reverb")
_GIT_TIMEOUT_SECONDS = 5
_CODE = pathlib.Path(__file__).resolve().parents[2]

# Reason of a run that failed, at its end or when it was stopped, because its learner could not save
# the last parameters.
NOT_SAVED = "The last parameters could not be saved. Is the disk full?"


def remove_summary(experiment: Experiment) -> None:
    """Remove the summary of a learner that was stopped and restarted: the run continues."""
    remove(pathlib.Path(experiment.workdir, SUMMARY_FILE))


def write_summary(
    experiment: Experiment,
    reason: str | None,
    is_saved: bool,
    learner_steps: int,
    actor_steps: int,
) -> None:
    """Write how a learner ended.

    Args:
      experiment: experiment whose run this is.
      reason: reason why the run is over; None if it was stopped before its end.
      is_saved: whether its last parameters are saved.
      learner_steps: number of updates.
      actor_steps: steps of all actors.
    """
    reason = reason if is_saved else NOT_SAVED
    summary = {
        "finished": reason not in (None, NOT_SAVED),
        "reason": reason or "stopped from outside",
        columns.LEARNER_STEPS: learner_steps,
        columns.ACTOR_STEPS: actor_steps,
        columns.WALL_TIME_SECONDS: experiment.elapsed_seconds(),
    }
    write_json(pathlib.Path(experiment.workdir, SUMMARY_FILE), summary)


def complete_summary(state: RunState, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Write the summary of a run whose nodes have ended.

    Args:
      state: state of the run, read after its end.
      changes: values that replace the learner's, such as `reason` or `git_commit`.

    Returns:
      The summary.
    """
    returns = [number(row, columns.MEAN_RETURN) for row in state.evaluations]
    written = state.run.summary() or {}
    learner_steps, actor_steps = (
        int(np.nan_to_num(number(row, column)))
        for row, column in (
            (state.learner, columns.LEARNER_STEPS),
            (state.replay, columns.ACTOR_STEPS),
        )
    )
    summary = {
        "finished": False,
        "reason": "",
        # The learner may have written nothing.
        columns.LEARNER_STEPS: learner_steps,
        columns.WALL_TIME_SECONDS: state.elapsed_seconds(),
        **written,
        # The learner may have been stopped before a replay told it.
        columns.ACTOR_STEPS: max(actor_steps, written.get(columns.ACTOR_STEPS, 0)),
        "num_episodes": state.num_episodes,
        "last_return": returns[-1] if returns else None,
        "best_return": max(returns, default=None),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": _versions(),
        **changes,
    }
    write_json(state.run.path / SUMMARY_FILE, summary)
    return summary


@functools.cache  # The code that runs is that of the start.
def git_commit(folder: pathlib.Path = _CODE) -> str | None:
    """Return the commit of a checkout, by default that of this code, with '-dirty' after a change.

    None outside of a checkout, or without the program git.
    """
    if not (folder / ".git").exists():  # Git would find the checkout of another project above it.
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(
            [*command, "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # A checkout that is not installed.
            versions[name] = None
    return versions
