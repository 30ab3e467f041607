"""Studies: settings that are compared with several seeds on several tasks, and their curves.

A figure of the paper is a study. Its curves are kept in one CSV file, from which its table and its
figure are made, so that both can be made anew without the runs.
"""

import csv
import io
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.metrics import columns
from apex_agents.plotting.curves import Curve, has_numbers, is_kept, make_curve
from apex_agents.plotting.run_groups import TASK
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.plan import Run
from apex_agents.studies.results import (
    HEADERS,
    MEANING_OF_ESTIMATES,
    MEANING_OF_PROGRESS,
    PROGRESS,
    format_table,
    show_estimate,
    show_progress,
)
from apex_agents.validation import require

# The score of a run is the mean return of the evaluations in this newest part of its steps.
_NEWEST = 0.25
_COLUMNS = ("task", "setting", "seed", *PROGRESS, columns.MEAN_RETURN)


class Setting(NamedTuple):
    """What is trained for one curve.

    Attributes:
      config: name of the config, as `--config` takes it, or path of its file, from the folder of
        the study's file or the current one.
      fields: new values of its fields, by dotted path.
    """

    config: str
    fields: Mapping[str, Any]


class Study(NamedTuple):
    """Settings that are compared, by `apex-paper --figure=FILE` if a file's `get_study` returns it.

    Attributes:
      title: what is compared.
      settings: by the labels of their curves; scores are compared with those of the first one.
      tasks: each of them is one panel.
      fields: new values of fields of all settings, such as the limit of the runs.
      x: column of the horizontal axis, in which the settings get as far as each other.
      num_seeds: runs of each setting on each task.
    """

    title: str
    settings: Mapping[str, Setting]
    tasks: Sequence[str]
    fields: Mapping[str, Any]
    x: str = columns.LEARNER_STEPS
    num_seeds: int = 3


def check_study(study: Study) -> None:
    """Raise a ValueError that names the first attribute of a study whose value is not allowed."""
    settings, tasks = study.settings, study.tasks
    is_dict = isinstance(settings, Mapping) and all(
        isinstance(label, str) and label.isprintable() for label in settings
    )
    require(bool(settings) and is_dict, "settings", settings, "a dict of labels to Settings")
    for label, setting in settings.items():
        is_setting = isinstance(setting, Setting) and _are_fields(setting.fields)
        is_setting = is_setting and isinstance(setting.config, str | pathlib.PurePath)
        allowed = "apex_agents.Setting(name or path of a config, {field: value})"
        require(is_setting, f"setting {label!r}", setting, allowed)
    is_tuple = isinstance(tasks, tuple | list) and all(isinstance(task, str) for task in tasks)
    is_set = is_tuple and len(set(tasks)) == len(tasks) > 0
    require(is_set, "tasks", tasks, "a tuple of different names of tasks, such as ('pong',)")
    require(_are_fields(study.fields), "fields", study.fields, "a dict of fields to values")
    for fields in (study.fields, *(setting.fields for setting in settings.values())):
        if TASK in fields:
            raise ValueError(f"{TASK} is no field of a study or a setting: name it in tasks.")
    require(study.x in PROGRESS, "x", study.x, f"one of {', '.join(PROGRESS)}")
    is_number = isinstance(study.num_seeds, int) and study.num_seeds > 0
    require(is_number, "num_seeds", study.num_seeds, "a whole number greater than 0")


def _are_fields(fields: object) -> bool:
    return isinstance(fields, Mapping) and all(isinstance(name, str) for name in fields)


class Point(NamedTuple):
    """An evaluation of a run; a row of the CSV file."""

    task: str
    setting: str
    seed: int
    actor_steps: float
    learner_steps: float
    wall_time_seconds: float
    mean_return: float


def read_points(run: Run) -> Iterator[Point]:
    """Yield the evaluations of a run of a study; see `read_evaluations`."""
    folder = run.open_folder()
    if folder:
        yield from read_evaluations(folder, run.task, dict(run.setting)["setting"], run.seed)


def read_evaluations(folder: RunFolder, task: str, setting: str, seed: int) -> Iterator[Point]:
    """Yield the evaluations of a run, but for those that were repeated after a stop."""
    table, names = folder.read_columns(columns.EVALUATOR), (*PROGRESS, columns.MEAN_RETURN)
    if not has_numbers(table, *names):
        return
    values = np.stack([table[name] for name in names])
    values = values[:, np.isfinite(values).all(axis=0)]
    # The learner goes back to its checkpoint; actor steps do not.
    for row in values[:, is_kept(values[names.index(columns.LEARNER_STEPS)])].T:
        yield Point(task, setting, seed, *map(float, row))


def to_csv(points: Iterable[Point]) -> str:
    """Return the content of a study's CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for point in points:
        numbers = (f"{value:.6g}" for value in point[-2:])
        writer.writerow([*point[:3], *(round(steps) for steps in point[3:5]), *numbers])
    return text.getvalue()


def from_csv(text: str) -> list[Point]:
    """Read the content of a study's CSV file.

    Raises:
      ValueError: it has other columns, or a row that cannot be read.
    """
    names, *rows = [row for row in csv.reader(text.splitlines()) if row] or [[]]
    if tuple(names) != _COLUMNS:
        raise ValueError(f"its columns are {', '.join(names)}, not {', '.join(_COLUMNS)}")
    points = []
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


def make_panels(study: Study, points: Iterable[Point]) -> dict[str, dict[str, list[Curve]]]:
    """Return by task the curves of each setting, one per seed, by its label.

    Settings that are not the study's, such as other programs, come behind those that are.
    """
    points = list(points)
    labels = dict.fromkeys([*study.settings, *(point.setting for point in points)])
    runs: dict[tuple[str, str], dict[int, list[Point]]] = {}
    for point in points:
        seeds = runs.setdefault((point.task, point.setting), {})
        seeds.setdefault(point.seed, []).append(point)

    def curves(task: str, label: str) -> list[Curve]:
        by_seed = sorted(runs.get((task, label), {}).items())
        return [_make_curve(run, study.x) for _, run in by_seed]

    return {task: {label: curves(task, label) for label in labels} for task in study.tasks}


def _make_curve(run: Sequence[Point], x: str) -> Curve:
    return make_curve(*np.array([(getattr(p, x), p.mean_return) for p in run]).T)


def score(curve: Curve) -> float:
    """Return the mean return in the newest part of a run."""
    return float(curve.y[curve.x >= (1 - _NEWEST) * curve.x[-1]].mean())


def to_markdown(study: Study, points: Sequence[Point]) -> str:
    """Return the table of the scores, a row for each setting, and what it means."""
    panels = make_panels(study, points)
    ends = {point[:3]: point for point in points}  # The last evaluation of each run.
    scores = {
        label: [np.array([score(curve) for curve in panels[task][label]]) for task in study.tasks]
        for label in panels[study.tasks[0]]
    }
    first, *_ = study.settings
    # Returns that may be negative have no ratios.
    is_relative = len(study.tasks) > 1 and all(
        len(values) and (values > 0).all() for values in scores[first]
    )
    head = ["setting", "seeds", *(HEADERS[name] for name in PROGRESS), *study.tasks]
    cells = [[*head, "all tasks"] if is_relative else head]
    for label, found in scores.items():
        counts = sorted({len(values) for values in found})
        runs = [point for point in ends.values() if point.setting == label]
        budget = (show_progress(name, [getattr(p, name) for p in runs]) for name in PROGRESS)
        seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        cells.append([label, seeds, *budget, *map(show_estimate, found)])
        if is_relative:
            ratios = [s / base.mean() for s, base in zip(found, scores[first], strict=True)]
            cells[-1].append(show_estimate(*ratios))
    meaning = (
        f"Scores: {MEANING_OF_ESTIMATES}. The score of a run is the mean return of the evaluations "
        f"in the last quarter of its {HEADERS[study.x]}. {MEANING_OF_PROGRESS}"
    )
    if is_relative:
        meaning += f" All tasks: the runs of all of them, each in mean scores of {first}."
    return f"{format_table(cells)}\n{meaning}\n"
