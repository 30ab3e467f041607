"""The results of a study: evaluations of its runs, a row for each setting on each task, tables.

A CSV file keeps the evaluations, from which tables and figures can be made anew without the runs.
"""

import collections
import csv
import datetime
import io
import itertools
import math
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from apex_agents.config import reaches
from apex_agents.evaluation.atari_scores import human_normalized_score, scored_game
from apex_agents.metrics import columns
from apex_agents.plotting.curves import INTERVAL, Curve, estimate, has_numbers, is_kept, make_curve
from apex_agents.plotting.run_groups import Columns, RunGroup
from apex_agents.runs.files import replace_file
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.runner import Screen
from apex_agents.studies.study import LABEL, PROGRESS, Cells, Run, Study, Targets, show_field

# The score of a run is the mean return of the evaluations in this newest part of its steps.
_NEWEST = 0.25
_NUMBERS = (*PROGRESS, columns.MEAN_RETURN)
_COLUMNS = ("task", "setting", "seed", *_NUMBERS)

EVALUATIONS_FILE = "evaluations.csv"


class Point(NamedTuple):
    """An evaluation of a run; a row of the CSV file."""

    task: str
    setting: str
    seed: int
    actor_steps: float
    learner_steps: float
    wall_time_seconds: float
    mean_return: float


def read_evaluations(folder: RunFolder, task: str, setting: str, seed: int) -> list[Point]:
    """Read the evaluations of a run, but for those that were repeated after a stop."""
    table = folder.read_columns(columns.EVALUATOR)
    if not has_numbers(table, *_NUMBERS):
        return []
    values = np.stack([table[name] for name in _NUMBERS])
    values = values[:, np.isfinite(values).all(axis=0)]
    # The learner goes back to its checkpoint; actor steps do not.
    is_last = is_kept(values[_NUMBERS.index(columns.LEARNER_STEPS)])
    return [Point(task, setting, seed, *map(float, row)) for row in values[:, is_last].T]


def read_points(run: Run) -> list[Point]:
    """Read the evaluations of a run of a study; see `read_evaluations`."""
    folder = run.open_folder()
    return read_evaluations(folder, run.task, run.label, run.seed) if folder else []


def read_saved(path: pathlib.Path, study: Study, taken: Collection[str]) -> list[Point]:
    """Read the evaluations in a CSV file that are shown with a study.

    Args:
      path: the file.
      study: the study.
      taken: labels that the evaluations must not have.

    Raises:
      ValueError: the file cannot be read, or its evaluations do not fit.
    """
    try:
        points = from_csv(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    for point in points:
        if point.task not in study.tasks:
            tasks = "; ".join(study.tasks)
            raise ValueError(f"has evaluations of {point.task}; the study's tasks are {tasks}.")
        if point.setting in taken:
            raise ValueError(f"has evaluations of {point.setting}, which the study has already.")
    for run in itertools.chain.from_iterable(group_seeds(points).values()):
        steps = [point.learner_steps for point in run]
        if steps != sorted(steps):
            name = ", ".join(map(str, run[0][:3]))
            raise ValueError(
                f"has evaluations of {name}, whose learner steps decrease: those of a run have to "
                "be in their order, and each run needs a seed of its own."
            )
    return points


def to_csv(points: Iterable[Point]) -> str:
    """Return the content of a CSV file of evaluations."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for point in points:
        numbers = (f"{value:.6g}" for value in point[-2:])
        writer.writerow([*point[:3], *(round(steps) for steps in point[3:5]), *numbers])
    return text.getvalue()


def from_csv(text: str) -> list[Point]:
    """Read the content of a CSV file of evaluations.

    Raises:
      ValueError: it has other columns, or a row that cannot be read.
    """
    names, *rows = [row for row in csv.reader(text.splitlines()) if row] or [[]]
    if tuple(names) != _COLUMNS:
        raise ValueError(f"its columns are {', '.join(names)}, not {', '.join(_COLUMNS)}")
    points: list[Point] = []
    for number, row in enumerate(rows, 2):
        try:
            task, setting, seed, *numbers = row
            points.append(Point(task, setting, int(seed), *map(float, numbers)))
            if not np.isfinite(points[-1][3:]).all():
                raise ValueError("NaN or infinite")
        except (ValueError, TypeError) as error:
            kinds = "a task, a label, a whole number and four finite numbers"
            raise ValueError(f"row {number} is {','.join(row)}, not {kinds}") from error
    return points


def group_seeds(points: Iterable[Point]) -> dict[tuple[str, str], list[list[Point]]]:
    """Return by task and label of a setting the evaluations of each run, the least seed first."""
    groups: dict[tuple[str, str], list[list[Point]]] = collections.defaultdict(list)
    in_order = sorted(points, key=lambda point: point[:3])
    for (task, label, _), run in itertools.groupby(in_order, lambda point: point[:3]):
        groups[task, label].append(list(run))
    return groups


def score(run: Sequence[Point], x: str, target: float | None = None) -> float:
    """Return the mean return in the newest part of a run, measured by a column.

    Of a run that ended when an evaluation reached its target return, that evaluation alone counts;
    it stands for the steps that the run was spared.
    """
    if target is not None and reaches(run[-1].mean_return, target):
        return run[-1].mean_return
    return score_curve(make_curve(*np.array([(getattr(p, x), p.mean_return) for p in run]).T))


def score_curve(curve: Curve) -> float:
    """Return the mean of a curve in the newest part of a run."""
    return float(curve.y[curve.x >= (1 - _NEWEST) * curve.x[-1]].mean())


class SavedRun(NamedTuple):
    """A run of which only the evaluations are known; figures read it as the folder of a run."""

    points: Sequence[Point]
    target_return: float | None = None
    path: pathlib.Path = pathlib.Path()

    @property
    def config(self) -> dict[str, Any]:
        task, _, seed, *_ = self.points[0]
        run = {"seed": seed, "target_return": self.target_return}
        return {"environment": {"task": task}, "run": run}

    def read_columns(self, name: str, max_bytes: int | None = None) -> Columns:
        """Return the columns of the evaluations; other files there are none."""
        if name != columns.EVALUATOR:
            return {}
        values = np.array([point[3:] for point in self.points]).T
        unknown = {columns.STANDARD_ERROR: np.full(len(self.points), np.nan)}
        return dict(zip(_NUMBERS, values, strict=True)) | unknown

    def settings(self, *sections: str) -> dict[str, Any]:
        """Return what is known of a section of the config."""
        return self.config["run"] if sections == ("run",) else {}

    def summary(self) -> dict[str, Any]:
        """Return a summary of a finished run; whether it really finished is unknown."""
        return {"finished": True}

    def logs(self) -> list[str]:
        """Return that nothing but the evaluations is known."""
        return []


def make_groups(
    study: Study,
    points: Iterable[Point],
    runs: Iterable[Run] = (),
    order: Sequence[str] = (),
    targets: Targets = MappingProxyType({}),
) -> list[RunGroup]:
    """Group the runs of a study for its figure.

    Args:
      study: the study; settings of other programs come behind its own.
      points: evaluations of all runs.
      runs: runs that have folders.
      order: labels in the order of their colours; further ones follow as they come.
      targets: target returns of the runs.
    """
    opened = {(run.task, run.label, run.seed): run.open_folder() for run in runs}
    members: dict[tuple[str, str], list[Any]] = collections.defaultdict(list)
    for key, group in group_seeds(points).items():
        saved = (SavedRun(run, targets.get(key)) for run in group if not opened.get(run[0][:3]))
        members[key] += saved
    for (task, label, _), folder in opened.items():
        members[task, label] += filter(None, [folder])
    members = {key: group for key, group in members.items() if group}
    labels = [*dict.fromkeys([*order, *study.settings, *(label for _, label in members)])]
    return [
        RunGroup(members[task, label], label, place)
        for task in study.tasks
        for place, label in enumerate(labels)
        if (task, label) in members
    ]


class Row(NamedTuple):
    """The results of a setting on a task.

    Attributes:
      task: name of the task.
      setting: the setting, a label or values of fields, by the names of the columns.
      runs: evaluations of each run that has some.
      values: results by the names of their columns. `runs` is how the runs ended, as in
        '2 finished, 1 failed', and `seeds` the number of those with an evaluation. A measure has
        the result of `estimate` over the runs, the ends of the interval (`_lower`, `_upper`), NaN
        for too few seeds, and the values of the seeds (`_of_seeds`). Steps and times are means of
        the runs as of their last evaluations. NaN where nothing is known.
    """

    task: str
    setting: Mapping[str, Any]
    runs: Sequence[Sequence[Point]]
    values: Mapping[str, Any]

    def cells(self) -> dict[str, Any]:
        """Return all values by the names of their columns."""
        return {"task": self.task, **self.setting, **self.values}


def summarise(
    study: Study,
    points: Sequence[Point],
    endings: Mapping[Run, str] | None = None,
    cells: Cells | None = None,
    targets: Targets = MappingProxyType({}),
) -> list[Row]:
    """Compute the results of a study, task by task.

    Args:
      study: the study; settings of other programs come behind its own.
      points: evaluations of all runs.
      endings: how the runs that have folders have ended.
      cells: values of settings in tables.
      targets: target returns of the runs.
    """
    planned: dict[tuple[str, str], dict[Run, str]] = collections.defaultdict(dict)
    for run, ending in (endings or {}).items():
        planned[run.task, run.label][run] = ending
    labels = dict.fromkeys([*study.settings, *(point.setting for point in points)])
    evaluated, rows = group_seeds(points), []
    for task, label in itertools.product(study.tasks, labels):
        members, runs = planned[task, label], evaluated[task, label]
        counts = collections.Counter(members.values())
        target = targets.get((task, label))
        last = [run[-1].mean_return for run in runs]
        values = {
            "runs": ", ".join(f"{count} {ending}" for ending, count in counts.items()),
            "seeds": len(runs),
            **_estimate("score", [score(run, study.x, target) for run in runs]),
            **_estimate("last_return", last),
            **_estimate("best_return", [max(p.mean_return for p in run) for run in runs]),
            **_estimate("human_normalized", _normalize(last, members)),
            **_progress(runs),
        }
        setting = (cells or {}).get(label, {LABEL: label})
        rows.append(Row(task, setting, runs, values))
    return rows


def _normalize(returns: Sequence[float], runs: Iterable[Run]) -> list[float]:
    """Return human-normalized returns; none if the task has no such scores."""
    folder = next(filter(None, (run.open_folder() for run in runs)), None)
    environment = folder.settings("environment") if folder else {}
    game = scored_game(environment.get("suite", ""), environment.get("task", ""))
    return [human_normalized_score(game, value) for value in returns] if game else []


def _progress(runs: Iterable[Sequence[Point]]) -> dict[str, float]:
    """Return how far runs got, and the time they took, as means."""
    ends = [run[-1] for run in runs]
    return {
        n: float(np.mean([getattr(e, n) for e in ends])) if ends else math.nan for n in PROGRESS
    }


def to_markdown(rows: Sequence[Row], x: str, has_targets: bool = False) -> str:
    """Return the tables for people, as Markdown with aligned columns, and their meaning.

    Of several tasks, a second table has the settings side by side.
    """
    cells = [row.cells() for row in rows]
    names = [name for name in _names(cells) if not name.endswith(_ENDS_OF_NAMES)]
    names = [name for name in names if any(_show(row, name) not in ("", "-") for row in cells)]
    header = [HEADERS.get(name, name) for name in names]
    table = format_table([header, *([_show(row, name) for name in names] for row in cells)])
    of_target = ", or its last return if it reached its target" if has_targets else ""
    meaning = (
        f"Returns: {MEANING_OF_ESTIMATES}. Score: mean return of the evaluations in the last "
        f"quarter of a run's {HEADERS[x]}{of_target}; there is luck in the best of its "
        "evaluations. Steps and wall time: mean of the runs as of their last evaluations."
    )
    if "human_normalized" in names:
        meaning += " Human normalized: last return, 0 % for a random player, 100 % for a human."
    if len({row.task for row in rows}) > 1:
        table += f"\n{compare(rows)}"
        meaning += (
            " All tasks: scores, each divided by the mean of the first setting on its task, of "
            "settings with as many seeds on each."
        )
    return f"{table}\n{meaning}\n"


def make_tables(
    study: Study,
    points: Sequence[Point],
    endings: Mapping[Run, str],
    cells: Cells,
    targets: Targets = MappingProxyType({}),
) -> dict[str, str]:
    """Return the contents of the files with the results of a study, the table for people first."""
    rows = summarise(study, points, endings, cells, targets)
    return {
        "results.md": to_markdown(rows, study.x, bool(targets)),
        "results.csv": rows_to_csv([row.cells() for row in rows]),
        EVALUATIONS_FILE: to_csv(points),
    }


def write_results(
    folder: pathlib.Path,
    tables: Mapping[str, str],
    draw: Callable[[], Sequence[pathlib.Path]],
    screen: Screen,
) -> bool:
    """Print and write the results of a study; return whether they could be written.

    Args:
      folder: folder of the study.
      tables: contents of its files by their names, the table for people first.
      draw: draws the figures and returns the paths of their files.
      screen: where the table for people and the paths are shown.
    """
    screen.print_table(next(iter(tables.values())))
    try:
        if EVALUATIONS_FILE in tables:
            _put_aside(folder / EVALUATIONS_FILE, from_csv(tables[EVALUATIONS_FILE]), screen)
        for name, text in tables.items():
            replace_file(folder / name, text.encode())
        files = [*draw(), *(folder / name for name in tables)]
    except OSError as error:
        screen.print(f"error: {folder} cannot be written: {error.strerror}")
        return False
    except Exception as error:  # Matplotlib may raise anything; the tables are already written.
        screen.print(f"error: no figure was drawn: {type(error).__name__}: {error}")
        return False
    for file in files:
        screen.print(str(file))
    return True


def _put_aside(file: pathlib.Path, points: Iterable[Point], screen: Screen) -> None:
    """Rename the file of evaluations, and say so, if it has runs that the new ones have not."""
    try:
        before = from_csv(file.read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, ValueError):
        return
    left_out = {point[:3] for point in before} - {point[:3] for point in points}
    if left_out:
        numbers = itertools.count(2)
        names = (file.with_name(f"{file.stem}-{number}{file.suffix}") for number in numbers)
        content = file.read_bytes()
        aside = next(name for name in names if not name.exists() or name.read_bytes() == content)
        file.rename(aside)
        runs = "; ".join(sorted({", ".join(filter(None, key[:2])) for key in left_out}))
        screen.print(
            f"Tables and figures no longer have the evaluations of {len(left_out)} runs ({runs}); "
            f"they are in {aside}."
        )


def compare(rows: Sequence[Row]) -> str:
    """Return a table of the scores with a row for each setting and a column for each task.

    If no score is negative and all of the first setting are positive, the last of several columns
    has the scores of all tasks, each divided by the mean score of the first setting on its task, of
    settings that have as many seeds on each.
    """
    settings: dict[tuple[tuple[str, Any], ...], list[Row]] = collections.defaultdict(list)
    for row in rows:
        settings[tuple(row.setting.items())].append(row)
    first, *_ = settings.values()
    bases = [row.values["score_of_seeds"] for row in first]
    # Returns that may be negative have no ratios.
    is_relative = len(bases) > 1 and all(base and min(base) > 0 for base in bases)
    is_relative &= all(min(row.values["score_of_seeds"], default=0.0) >= 0 for row in rows)
    names = _names([row.setting for row in rows])
    header = [*names, "seeds", *(HEADERS[name] for name in PROGRESS), *(r.task for r in first)]
    table = [[*header, "all tasks"] if is_relative else header]
    for setting, members in settings.items():
        counts = sorted({len(row.runs) for row in members})
        seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        progress = _progress(itertools.chain.from_iterable(row.runs for row in members))
        scores = [row.values["score_of_seeds"] for row in members]
        cells = [_show(dict(setting), name) for name in names]
        cells += [seeds, *(_show(progress, name) for name in PROGRESS), *map(show_estimate, scores)]
        if is_relative:
            ratios = [np.divide(s, np.mean(base)) for s, base in zip(scores, bases, strict=True)]
            cells.append(show_estimate(*ratios) if len(counts) == 1 and counts[0] else "-")
        table.append(cells)
    return format_table(table)


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the columns of some rows."""
    return list(dict.fromkeys(name for row in rows for name in row))


def format_table(cells: Sequence[Sequence[str]]) -> str:
    """Return rows of texts, of which the first is the header, as Markdown with aligned columns."""
    cells = [[text.replace("|", r"\|") for text in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    header, *rows = cells
    lines = [header, ["-" * width for width in widths], *rows]
    return "".join(f"| {' | '.join(map(str.ljust, line, widths))} |\n" for line in lines)


def show_estimate(*returns: Sequence[float] | np.ndarray) -> str:
    """Format the returns of a setting's seeds; several sequences are of several tasks."""
    return _show(_estimate("score", *returns), "score")


def rows_to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for programs, as CSV with all digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _names(rows), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        lists = {name: " ".join(map(str, v)) for name, v in row.items() if isinstance(v, list)}
        writer.writerow({**row, **lists})
    return text.getvalue()


def _estimate(name: str, *values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Return the mean over runs, its confidence interval, and the values of the seeds of a task."""
    found = estimate(*map(np.array, values)) if any(map(len, values)) else 3 * (np.nan,)
    of_seeds = [float(value) for value in values[0]] if len(values) == 1 else []
    parts = (*map(float, found), of_seeds)
    return {f"{name}{end}": part for end, part in zip(("", *_ENDS_OF_NAMES), parts, strict=True)}


def _show(row: Mapping[str, Any], name: str) -> str:
    """Format a field of a row, with its confidence interval, or else the values of its seeds."""
    value = row.get(name, "")
    if value != value:  # NaN.
        return "-"
    show = _FORMATS.get(name, show_field)
    lower, upper, of_seeds = (row.get(f"{name}{end}", math.nan) for end in _ENDS_OF_NAMES)
    if lower == lower:
        return f"{show(value)} [{show(lower)}, {show(upper)}]"
    seeds = list(map(show, of_seeds)) if isinstance(of_seeds, list) else []
    return f"{show(value)} ({' / '.join(seeds)})" if len(seeds) > 1 else show(value)


def _show_return(value: float) -> str:
    """Format a return with about four digits."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # No -0.


# Ends of the names of columns that belong to an estimate.
_ENDS_OF_NAMES = ("_lower", "_upper", "_of_seeds")
# How numbers are written for people.
_FORMATS: dict[str, Callable[[Any], str]] = {
    "score": _show_return,
    "last_return": _show_return,
    "best_return": _show_return,
    "human_normalized": "{:.1%}".format,
    columns.ACTOR_STEPS: "{:,.0f}".format,
    columns.LEARNER_STEPS: "{:,.0f}".format,
    columns.WALL_TIME_SECONDS: lambda seconds: str(datetime.timedelta(seconds=round(seconds))),
}
HEADERS = {name: name.removesuffix("_seconds").replace("_", " ") for name in _FORMATS}
MEANING_OF_ESTIMATES = (
    f"from five seeds on the interquartile mean [{INTERVAL}]; of fewer, which say little, the mean "
    "(each seed)"
)
