"""The results of a sweep: a row of numbers for each setting, and these rows as tables."""

import collections
import csv
import datetime
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from apex_agents.evaluation.atari_scores import human_normalized_score, scored_game
from apex_agents.metrics import columns
from apex_agents.plotting.curves import MIN_SEEDS_OF_INTERVAL, estimate, has_numbers
from apex_agents.runs.folder import RunFolder

Row = dict[str, Any]


def summarise(
    task: str, setting: Mapping[str, str], folders: Sequence[RunFolder], endings: Sequence[str]
) -> Row:
    """Read the results of one setting.

    Args:
      task: name of the task.
      setting: names and values of the other fields in which settings differ.
      folders: folders of the runs that have begun.
      endings: how each run has ended, also of those that have not begun.

    Returns:
      The row of `results.csv`: task; setting; runs, as in '2 finished, 1 failed'; what `estimate`
      makes of the last and of the best evaluation of each run, and of the last one on a scale from
      0, a random player, to 1, a human, with the ends of the intervals (`_lower`, `_upper`), which
      are the smallest and the largest value of seeds that are too few for an interval; means of the
      runs' steps and times. NaN where nothing is known.
    """
    tables = [folder.read_columns(columns.EVALUATOR) for folder in folders]
    with_returns = [table for table in tables if has_numbers(table, columns.MEAN_RETURN)]
    returns = [table[columns.MEAN_RETURN] for table in with_returns]
    returns = [finite for values in returns if len(finite := values[np.isfinite(values)])]
    # A run that was killed has no summary: it got as far as its last evaluation.
    progress: list[Mapping[str, Any]] = [
        folder.summary() or {name: column[-1] for name, column in table.items()}
        for folder, table in zip(folders, tables, strict=True)
    ]
    last_returns = [values[-1] for values in returns]
    return {
        "task": task,
        **setting,
        "runs": ", ".join(f"{n} {ending}" for ending, n in collections.Counter(endings).items()),
        **_estimate("last_return", last_returns),
        **_estimate("best_return", [values.max() for values in returns]),
        **_estimate("human_normalized", _normalize(last_returns, folders)),
        **{name: _mean([run[name] for run in progress if name in run]) for name in _PROGRESS},
    }


def to_markdown(rows: Sequence[Row]) -> str:
    """Return a table for people, as Markdown with aligned columns, and what it means."""
    has_scores = any(math.isfinite(row["human_normalized"]) for row in rows)
    hidden = () if has_scores else ("human_normalized",)
    names = [n for n in rows[0] if not n.endswith(("_lower", "_upper")) and n not in hidden]
    cells = [[_HEADERS.get(name, name) for name in names]]
    cells += [[_show(row, name) for name in names] for row in rows]
    meaning = _MEANING + _MEANING_OF_SCORES if has_scores else _MEANING
    return f"{format_table(cells)}\n{meaning}\n"


def format_table(cells: Sequence[Sequence[str]]) -> str:
    """Return rows of texts, of which the first is the header, as Markdown with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    header, *rows = cells
    lines = [header, ["-" * width for width in widths], *rows]
    return "".join(f"| {' | '.join(map(str.ljust, line, widths))} |\n" for line in lines)


def show_estimate(*returns: np.ndarray) -> str:
    """Format what the seeds of a setting achieved, `[S]`; several arrays are of several tasks."""
    return _show(_estimate("last_return", *returns), "last_return")


def to_csv(rows: Sequence[Row]) -> str:
    """Return a table for programs, as CSV with all digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _estimate(name: str, *values: Sequence[float] | np.ndarray) -> Row:
    """Return the mean over runs, and its confidence interval or the range of a few runs."""
    runs = np.concatenate(values)
    mean, lower, upper = estimate(*map(np.array, values)) if len(runs) else 3 * (np.nan,)
    if 1 < len(runs) < MIN_SEEDS_OF_INTERVAL:
        lower, upper = runs.min(), runs.max()
    return {name: float(mean), f"{name}_lower": float(lower), f"{name}_upper": float(upper)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _normalize(returns: Sequence[float], folders: Sequence[RunFolder]) -> list[float]:
    """Return human-normalized returns; none if the task has no such scores."""
    environment = folders[0].settings("environment") if folders else {}
    game = scored_game(environment.get("suite", ""), environment.get("task", ""))
    return [human_normalized_score(game, value) for value in returns] if game else []


def _show(row: Row, name: str) -> str:
    """Format a field of a row, with its confidence interval or range if it has one."""
    if row[name] != row[name]:  # NaN.
        return "-"
    show = _FORMATS.get(name, str)
    value = show(row[name])
    ends = [row.get(f"{name}_{end}", math.nan) for end in ("lower", "upper")]
    return value if math.isnan(ends[0]) else f"{value} [{', '.join(map(show, ends))}]"


def _show_return(value: float) -> str:
    """Format a return with about four digits."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # No -0.


_PROGRESS = (columns.ACTOR_STEPS, columns.LEARNER_STEPS, columns.WALL_TIME_SECONDS)
# How numbers are written for people; the columns before them are texts.
_FORMATS: dict[str, Callable[[Any], str]] = {
    "last_return": _show_return,
    "best_return": _show_return,
    "human_normalized": "{:.1%}".format,
    columns.ACTOR_STEPS: "{:,.0f}".format,
    columns.LEARNER_STEPS: "{:,.0f}".format,
    columns.WALL_TIME_SECONDS: lambda seconds: str(datetime.timedelta(seconds=round(seconds))),
}
_HEADERS = {name: name.removesuffix("_seconds").replace("_", " ") for name in _FORMATS}
# What `show_estimate` shows.
MEANING_OF_ESTIMATES = (
    "mean over the seeds [smallest, largest], from five seeds on the interquartile mean "
    "[95 % confidence interval]"
)
_MEANING = (
    f"Returns: {MEANING_OF_ESTIMATES}, of each run's last evaluation, and of its best one, in "
    "which there is luck. Steps and wall time: mean of the runs."
)
_MEANING_OF_SCORES = (
    " Human normalized: the last return, from 0 % for a random player to 100 % for a human."
)
