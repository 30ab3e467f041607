"""What the runs of a sweep have come to, task by task, as numbers and as tables."""

import collections
import csv
import datetime
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.running.plotting.curves import (
    bootstrap_interval,
    has_numbers,
    interquartile_mean,
)
from apex_agents.running.run_files import RunFolder

EXPLANATION = (
    "Returns: interquartile mean over the seeds (of fewer than 4 the mean) with its 95 % "
    "confidence interval, of each run's last evaluation, and of its best one, in which there is "
    "luck. Steps and wall time: mean of the runs."
)


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
      actor_steps: mean of the runs; NaN if none has got anywhere.
      learner_steps: mean of the runs.
      wall_time_seconds: mean of the runs.
    """

    task: str
    endings: Mapping[str, int]
    last_return: Estimate
    best_return: Estimate
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
    return TaskResult(
        task,
        collections.Counter(endings),
        _estimate([values[-1] for values in returns if len(values)]),
        _estimate([values.max() for values in returns if len(values)]),
        actor_steps=_mean(progress, "actor_steps"),
        learner_steps=_mean(progress, "learner_steps"),
        wall_time_seconds=_mean(progress, "wall_time_seconds"),
    )


def to_rows(results: Sequence[TaskResult]) -> list[list[str]]:
    """Return a table for people; the first row names the columns."""
    return [list(_COLUMNS), *([show(result) for show in _COLUMNS.values()] for result in results)]


def to_markdown(results: Sequence[TaskResult]) -> str:
    """Return the table as Markdown that can be read as it is, and what it means."""
    rows = to_rows(results)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join([*lines, "", EXPLANATION, ""])


def to_csv(results: Sequence[TaskResult]) -> str:
    """Return the table as CSV, with all digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    estimates = ("last_return", "best_return")
    names = ("actor_steps", "learner_steps", "wall_time_seconds")
    ends = ("", "_lower", "_upper")
    writer.writerow(["task", "runs", *(n + end for n in estimates for end in ends), *names])
    for result in results:
        numbers = [*result.last_return, *result.best_return, *(getattr(result, n) for n in names)]
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


def _show_estimate(estimate: Estimate) -> str:
    value, lower, upper = map(_show_return, estimate)
    return value if lower == upper else f"{value} [{lower}, {upper}]"


def _show_return(value: float) -> str:
    """Write a return with about four digits."""
    if math.isnan(value):
        return "-"
    return f"{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def _show_steps(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"


def _show_time(seconds: float) -> str:
    return "-" if math.isnan(seconds) else str(datetime.timedelta(seconds=round(seconds)))


# Of the table for people, in this order.
_COLUMNS: dict[str, Callable[[TaskResult], str]] = {
    "task": lambda result: result.task,
    "runs": lambda result: describe_endings(result.endings),
    "last return": lambda result: _show_estimate(result.last_return),
    "best return": lambda result: _show_estimate(result.best_return),
    "actor steps": lambda result: _show_steps(result.actor_steps),
    "learner steps": lambda result: _show_steps(result.learner_steps),
    "wall time": lambda result: _show_time(result.wall_time_seconds),
}
