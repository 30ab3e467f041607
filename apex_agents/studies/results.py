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
from apex_agents.plotting.curves import INTERVAL, estimate, has_numbers
from apex_agents.runs.folder import RunFolder

Row = dict[str, Any]

# How far a run got, and what it took.
PROGRESS = (columns.ACTOR_STEPS, columns.LEARNER_STEPS, columns.WALL_TIME_SECONDS)


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
      The row of `results.csv`: task; setting; runs, as in '2 finished, 1 failed'; number of seeds
      with an evaluation; what `estimate` makes of the last and of the best evaluation of each run,
      and of the last one on a scale from 0, a random player, to 1, a human, with the ends of the
      intervals (`_lower`, `_upper`), NaN for seeds that are too few, and the values of the seeds
      (`_of_seeds`); means of the runs' steps and times. NaN where nothing is known.
    """
    tables = [folder.read_columns(columns.EVALUATOR) for folder in folders]
    with_returns = [table for table in tables if has_numbers(table, columns.MEAN_RETURN)]
    returns = [table[columns.MEAN_RETURN] for table in with_returns]
    returns = [finite for values in returns if len(finite := values[np.isfinite(values)])]
    progress = [read_progress(folder) for folder in folders]
    last_returns = [values[-1] for values in returns]
    return {
        "task": task,
        **setting,
        "runs": ", ".join(f"{n} {ending}" for ending, n in collections.Counter(endings).items()),
        "seeds": len(returns),
        **_estimate("last_return", last_returns),
        **_estimate("best_return", [values.max() for values in returns]),
        **_estimate("human_normalized", _normalize(last_returns, folders)),
        **{name: _mean([run[name] for run in progress if name in run]) for name in PROGRESS},
    }


def read_progress(folder: RunFolder) -> Mapping[str, Any]:
    """Return how far a run got: its summary, or the last evaluation of one that was killed."""
    table = folder.read_columns(columns.EVALUATOR)
    return folder.summary() or {name: column[-1] for name, column in table.items()}


def to_markdown(rows: Sequence[Row]) -> str:
    """Return a table for people, as Markdown with aligned columns, and what it means."""
    has_scores = any(math.isfinite(row["human_normalized"]) for row in rows)
    hidden = () if has_scores else ("human_normalized",)
    names = [n for n in rows[0] if not n.endswith(_ENDS_OF_NAMES) and n not in hidden]
    meaning = _MEANING + _MEANING_OF_SCORES if has_scores else _MEANING
    return f"{format_rows(rows, names)}\n{meaning}\n"


def format_rows(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the columns of these names as Markdown, with numbers as people write them."""
    header = [HEADERS.get(name, name) for name in names]
    return format_table([header, *([_show(row, name) for name in names] for row in rows)])


def format_table(cells: Sequence[Sequence[str]]) -> str:
    """Return rows of texts, of which the first is the header, as Markdown with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    header, *rows = cells
    lines = [header, ["-" * width for width in widths], *rows]
    return "".join(f"| {' | '.join(map(str.ljust, line, widths))} |\n" for line in lines)


def show_estimate(*returns: np.ndarray) -> str:
    """Format what the seeds of a setting achieved, `[S]`; several arrays are of several tasks."""
    return _show(_estimate("last_return", *returns), "last_return")


def show_progress(name: str, values: Sequence[float]) -> str:
    """Format the mean of a column of `PROGRESS` over runs."""
    return _show({name: _mean(values)}, name)


def to_csv(rows: Sequence[Row]) -> str:
    """Return a table for programs, as CSV with all digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _to_text(value) for name, value in row.items()})
    return text.getvalue()


def _to_text(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _estimate(name: str, *values: Sequence[float] | np.ndarray) -> Row:
    """Return the mean over runs, its confidence interval, and the values of the seeds of a task."""
    mean, *ends = estimate(*map(np.array, values)) if any(map(len, values)) else 3 * (np.nan,)
    lower, upper, of_seeds = (f"{name}{end}" for end in _ENDS_OF_NAMES)
    found = dict(zip((name, lower, upper), map(float, (mean, *ends)), strict=True))
    return {**found, of_seeds: [float(value) for value in values[0]] if len(values) == 1 else []}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _normalize(returns: Sequence[float], folders: Sequence[RunFolder]) -> list[float]:
    """Return human-normalized returns; none if the task has no such scores."""
    environment = folders[0].settings("environment") if folders else {}
    game = scored_game(environment.get("suite", ""), environment.get("task", ""))
    return [human_normalized_score(game, value) for value in returns] if game else []


def _show(row: Row, name: str) -> str:
    """Format a field of a row, with its confidence interval, or else the values of its seeds."""
    if row[name] != row[name]:  # NaN.
        return "-"
    show = _FORMATS.get(name, show_field)
    lower, upper, of_seeds = (row.get(f"{name}{end}", math.nan) for end in _ENDS_OF_NAMES)
    if lower == lower:
        return f"{show(row[name])} [{show(lower)}, {show(upper)}]"
    seeds = list(map(show, of_seeds)) if isinstance(of_seeds, list) else []
    return f"{show(row[name])} ({' / '.join(seeds)})" if len(seeds) > 1 else show(row[name])


def show_field(value: Any) -> str:
    """Format the value of a field, a number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show_return(value: float) -> str:
    """Format a return with about four digits."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # No -0.


# Ends of the names of columns that belong to an estimate.
_ENDS_OF_NAMES = ("_lower", "_upper", "_of_seeds")
# How numbers are written for people; the columns before them are texts.
_FORMATS: dict[str, Callable[[Any], str]] = {
    "last_return": _show_return,
    "best_return": _show_return,
    "human_normalized": "{:.1%}".format,
    columns.ACTOR_STEPS: "{:,.0f}".format,
    columns.LEARNER_STEPS: "{:,.0f}".format,
    columns.WALL_TIME_SECONDS: lambda seconds: str(datetime.timedelta(seconds=round(seconds))),
}
HEADERS = {name: name.removesuffix("_seconds").replace("_", " ") for name in _FORMATS}
# What `show_estimate` shows.
MEANING_OF_ESTIMATES = (
    f"from five seeds on the interquartile mean [{INTERVAL}]; of fewer, which say little, the mean "
    "(each seed)"
)
MEANING_OF_PROGRESS = "Steps and wall time: mean of the runs."
_MEANING = (
    f"Returns: {MEANING_OF_ESTIMATES}; of each run's last evaluation, and of its best one, in "
    f"which there is luck. {MEANING_OF_PROGRESS}"
)
_MEANING_OF_SCORES = (
    " Human normalized: the last return, from 0 % for a random player to 100 % for a human."
)
