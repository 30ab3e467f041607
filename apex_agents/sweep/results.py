"""What the runs of a sweep have come to, task by task, as numbers and as tables."""

import collections
import csv
import datetime
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.environments.atari_config import rom_name
from apex_agents.evaluation.atari_scores import atari_scores, human_normalized_score
from apex_agents.plotting.curves import (
    bootstrap_interval,
    has_numbers,
    interquartile_mean,
)
from apex_agents.plotting.run_groups import flatten
from apex_agents.runs.folder import RunFolder


class Estimate(NamedTuple):
    """A mean over seeds and its confidence interval; NaN without a seed."""

    value: float
    lower: float
    upper: float


class TaskResult(NamedTuple):
    """What all runs of one task have come to.

    Attributes:
      task: its name.
      endings: how many runs ended in which way.
      last_return: mean return of each run's last evaluation.
      best_return: mean return of each run's best evaluation.
      human_normalized: `last_return` as a share of the way from a random player to a human one; NaN
        if that is known of no human.
      actor_steps: mean of the runs; NaN if none has got anywhere.
      learner_steps: mean of the runs.
      wall_time_seconds: mean of the runs.
    """

    task: str
    endings: Mapping[str, int]
    last_return: Estimate
    best_return: Estimate
    human_normalized: Estimate
    actor_steps: float
    learner_steps: float
    wall_time_seconds: float


def summarise(task: str, runs: Sequence[RunFolder], endings: Sequence[str]) -> TaskResult:
    """Read the runs of one task.

    Args:
      task: its name.
      runs: those that have begun.
      endings: how each run ended, of all that there should be.
    """
    tables = [run.read_columns("evaluator") for run in runs]
    tables = [table for table in tables if has_numbers(table, "mean_return")]
    returns = [table["mean_return"][np.isfinite(table["mean_return"])] for table in tables]
    progress = [_read_progress(run) for run in runs]
    last_return = _estimate([values[-1] for values in returns if len(values)])
    return TaskResult(
        task,
        collections.Counter(endings),
        last_return,
        best_return=_estimate([values.max() for values in returns if len(values)]),
        human_normalized=_normalize(last_return, _scored_game(runs)),
        actor_steps=_mean(progress, "actor_steps"),
        learner_steps=_mean(progress, "learner_steps"),
        wall_time_seconds=_mean(progress, "wall_time_seconds"),
    )


def to_rows(results: Sequence[TaskResult]) -> list[list[str]]:
    """Return a table for people; the first row names the columns."""
    has_scores = any(not math.isnan(result.human_normalized.value) for result in results)
    columns = {n: show for n, show in _COLUMNS.items() if has_scores or n != _HUMAN_NORMALIZED}
    return [list(columns), *([show(result) for show in columns.values()] for result in results)]


def explain(results: Sequence[TaskResult]) -> str:
    """Say what the numbers of the table are."""
    scores = (
        "Human-normalized is the last one, from 0 % for a random player to 100 % for a human. "
        if _HUMAN_NORMALIZED in to_rows(results)[0]
        else ""
    )
    return (
        "Returns: interquartile mean over the seeds (of fewer than 4 the mean) with its 95 % "
        "confidence interval, of each run's last evaluation, and of its best one, in which there "
        f"is luck. {scores}Steps and wall time: mean of the runs."
    )


def to_markdown(results: Sequence[TaskResult]) -> str:
    """Return the table as Markdown that can be read as it is, and what it means."""
    rows = to_rows(results)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join([*lines, "", explain(results), ""])


def to_csv(results: Sequence[TaskResult]) -> str:
    """Return the table as CSV, with all digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    estimates = ("last_return", "best_return", "human_normalized")
    means = ("actor_steps", "learner_steps", "wall_time_seconds")
    ends = ("", "_lower", "_upper")
    writer.writerow(["task", "runs", *(n + end for n in estimates for end in ends), *means])
    for result in results:
        numbers = [number for name in estimates for number in getattr(result, name)]
        numbers += [getattr(result, name) for name in means]
        writer.writerow([result.task, describe_endings(result.endings), *numbers])
    return text.getvalue()


def describe_endings(endings: Mapping[str, int]) -> str:
    """Say how many runs ended in which way."""
    return ", ".join(f"{count} {ending}" for ending, count in endings.items())


def _read_progress(run: RunFolder) -> dict[str, Any]:
    """Return how far a run has got: at its end or, if it was killed, in its last evaluation."""
    columns = run.read_columns("evaluator")
    return run.summary() or {name: values[-1] for name, values in columns.items()}


def _mean(progress: Sequence[Mapping[str, Any]], name: str) -> float:
    values = [run[name] for run in progress if name in run]
    return float(np.mean(values)) if values else math.nan


def _estimate(values: Sequence[float]) -> Estimate:
    if not values:
        return Estimate(math.nan, math.nan, math.nan)
    array = np.array(values)
    return Estimate(*map(float, (interquartile_mean(array), *bootstrap_interval(array))))


def _scored_game(runs: Sequence[RunFolder]) -> str | None:
    """Return the game of the runs, if there is a human's score of it."""
    fields = flatten(runs[0].config) if runs else {}
    if fields.get("environment.suite") != "atari":
        return None
    game = rom_name(fields["environment.task"])
    return game if game in atari_scores() else None


def _normalize(score: Estimate, game: str | None) -> Estimate:
    """Normalise a mean and its interval, as if each seed's score had been: that is linear."""
    if game is None:
        return _estimate([])
    return Estimate(*(human_normalized_score(game, value) for value in score))


def _show_estimate(estimate: Estimate, show: Callable[[float], str]) -> str:
    if math.isnan(estimate.value):
        return "-"
    value, lower, upper = map(show, estimate)
    return value if lower == upper else f"{value} [{lower}, {upper}]"


def _show_return(value: float) -> str:
    """Write a return with about four digits."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # No -0.


def _show_steps(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"


def _show_time(seconds: float) -> str:
    return "-" if math.isnan(seconds) else str(datetime.timedelta(seconds=round(seconds)))


_HUMAN_NORMALIZED = "human-normalized"
# Of the table for people, in this order.
_COLUMNS: dict[str, Callable[[TaskResult], str]] = {
    "task": lambda result: result.task,
    "runs": lambda result: describe_endings(result.endings),
    "last return": lambda result: _show_estimate(result.last_return, _show_return),
    "best return": lambda result: _show_estimate(result.best_return, _show_return),
    _HUMAN_NORMALIZED: lambda result: _show_estimate(result.human_normalized, "{:.1%}".format),
    "actor steps": lambda result: _show_steps(result.actor_steps),
    "learner steps": lambda result: _show_steps(result.learner_steps),
    "wall time": lambda result: _show_time(result.wall_time_seconds),
}
