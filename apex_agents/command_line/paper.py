r"""Compares settings with several seeds: a study of yours, or an experiment of the paper.

A study is a Python file with a function `get_study`, which names the settings, the tasks and how
long a run is: --figure=my_study.py. The experiments of the paper are studies in configs/paper/:
--figure is the number of a figure, or the name of a file there.

The folder holds <task>/<setting>/seed_<i>/, the work directories of the runs, and in the end
<figure>.csv, every evaluation of every run, <figure>.md, the table of the scores, and <figure>.png
and <figure>.svg.

Given again, after Ctrl-C for example, the command resumes the runs that have not reached their end.
--tasks and --settings choose which to train, by regular expressions that are searched in the names;
table and figure show all that the folder holds.

--draw makes table and figure anew from the evaluations in a CSV file, and trains nothing; --tasks
and --settings choose what is shown then. --beside adds those of other programs, or of an earlier
study, in a CSV file with the same columns. --x chooses another of these columns as the horizontal
axis, as figure 10 does with figure 2's.

Examples:
  python launch/paper.py --figure=my_study.py --seeds=5 --workdir=sweeps/my_study
  python launch/paper.py --figure=4 --parallel=2
  python launch/paper.py --figure=4 --tasks=Asterix --settings='^(4|256) ' --workdir=sweeps/part
  python launch/paper.py --figure=heads --draw=results/paper/heads.csv --workdir=figures
"""

import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from absl import app, flags
from rich.console import Console

from apex_agents.command_line import several_runs
from apex_agents.command_line.config_files import execute_file, find_config, load_config_file
from apex_agents.command_line.errors import fail, leave, parse_flags, refuse_arguments
from apex_agents.command_line.paths import locate
from apex_agents.command_line.settings import Settings, change_fields
from apex_agents.command_line.studies import choose, find_study
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_SUCCESS
from apex_agents.plotting import draw_study
from apex_agents.plotting.run_groups import TASK
from apex_agents.runs.setting_labels import read_labels, record_labels
from apex_agents.studies.plan import Run, check_folders, plan_runs
from apex_agents.studies.results import PROGRESS
from apex_agents.studies.runner import FINISHED
from apex_agents.studies.screen import Screen
from apex_agents.studies.study import (
    Point,
    Study,
    check_study,
    from_csv,
    make_panels,
    read_points,
    to_csv,
    to_markdown,
)

_FIGURE = flags.DEFINE_string(
    "figure", None, "Python file of a study, number of a figure, or another name in configs/paper/."
)
_SEEDS = flags.DEFINE_integer("seeds", None, "Runs of each setting; by default the study's.", 1)
_DRAW = flags.DEFINE_string("draw", None, "CSV file to make table and figure from.")
_X = flags.DEFINE_enum("x", None, PROGRESS, "Horizontal axis; by default the study's.")
_BESIDE = flags.DEFINE_string("beside", None, "CSV file of further evaluations to show.")
_TASKS = flags.DEFINE_string("tasks", "", "Only tasks in which this regular expression is found.")
_SETTINGS = flags.DEFINE_string(
    "settings", "", "Only settings in whose names this regular expression is found."
)
flags.adopt_module_key_flags(several_runs)

_MAX_NAMES = 5  # Of unfinished runs below a table.


def main() -> None:
    """Run the command, and exit."""
    app.run(_run, flags_parser=parse_flags)


def _run(argv: Sequence[str]) -> None:
    refuse_arguments(argv)
    path = find_study(_FIGURE.value or "")
    study = execute_file("figure", path, Study, "get_study")
    try:
        check_study(study)
    except ValueError as error:
        fail(f"--figure={path}: {error}")
    study = study._replace(x=_X.value or study.x)
    part = study._replace(
        tasks=choose("tasks", _TASKS.value, study.tasks),
        settings={
            label: study.settings[label]
            for label in choose("settings", _SETTINGS.value, study.settings)
        },
        num_seeds=_SEEDS.value or study.num_seeds,
    )
    screen = Screen(Console())
    with several_runs.preparing_folder(path.stem) as folder:
        if _DRAW.value is not None:
            _draw(study, part, folder, path.stem, screen)
        beside = _read_beside(study, study.settings)
        runs, chosen = _plan(study, part, path, folder)
        lock = several_runs.lock_folder(folder)
        record_labels(folder, {run.folder.parent: dict(run.setting)["setting"] for run in runs})
    screen.print(f"Folder: {folder}")

    def write(endings: Mapping[Run, str]) -> bool:
        points = [point for run in runs for point in read_points(run)]
        unfinished = [
            run.name
            for run, is_asked_for in runs.items()
            if not run.is_finished
            and endings.get(run) != FINISHED
            and (is_asked_for or run.open_folder())
        ]
        return _write_results(folder / path.stem, study, [*points, *beside], screen, unfinished)

    several_runs.train_to_end(chosen, lock, screen, write)


def _draw(study: Study, part: Study, folder: pathlib.Path, name: str, screen: Screen) -> NoReturn:
    """Draw the part of a study that is asked for from the file of --draw, and exit."""
    drawn = _DRAW.value or ""
    is_own = locate(drawn).resolve().parent == folder.resolve()
    is_changed = _X.value or _BESIDE.value or _TASKS.value or _SETTINGS.value
    holds_runs = any(folder.glob("*/setting=*"))
    if (is_own and is_changed) or (holds_runs and not is_own):
        raise ValueError(f"{folder} holds the study's own figure; name another --workdir.")
    points = _read_csv("draw", drawn, study)
    points += _read_beside(study, {*study.settings, *(point.setting for point in points)})
    order = [*study.settings, *(point.setting for point in points)]
    points = [
        point
        for point in points
        if re.search(_TASKS.value, point.task) and re.search(_SETTINGS.value, point.setting)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    is_written = _write_results(folder / name, part, points, screen, order=order)
    leave(EXIT_SUCCESS if is_written else EXIT_FAILURE)


def _plan(
    study: Study, part: Study, path: pathlib.Path, folder: pathlib.Path
) -> tuple[dict[Run, bool], list[Run]]:
    """Plan the runs of a study; a ValueError says what is impossible.

    Args:
      study: the whole study.
      part: what of it is to be trained, with as many seeds as are asked for.
      path: file of the study.
      folder: where the runs are.

    Returns:
      All runs, each with whether its seed is asked for, and those to be trained.
    """
    runs: dict[Run, bool] = {}
    chosen: list[Run] = []
    files = {
        label: find_config(str(name), folder=path.parent, given=f"setting {label!r}: ")
        for label, (name, _) in study.settings.items()
    }
    configs = {file: load_config_file(file) for file in files.values()}
    names = [run.name.removeprefix("seed_") for run in folder.glob("*/setting=*/seed_*")]
    seeds = [int(name) for name in names if name.isdecimal()]  # An earlier command had more.
    for task in study.tasks:
        for label, file in files.items():
            fields = {**study.fields, TASK: task, **study.settings[label].fields}
            settings = Settings(configs[file], file, {}, {})
            is_chosen = task in part.tasks and label in part.settings
            try:
                config = change_fields(settings.config, fields)
                counts = [seed + 1 - config.run.seed for seed in seeds]
                num_seeds = max(study.num_seeds, part.num_seeds, *counts)
                if is_chosen:
                    several_runs.check_config(config)
                command = several_runs.make_command(settings, fields)
                planned = plan_runs(config, {"setting": label}, num_seeds, folder, command)
            except ValueError as error:
                raise ValueError(f"setting {label!r}: {error}") from error
            runs |= {run: seed < part.num_seeds for seed, run in enumerate(planned)}
            chosen += planned[: part.num_seeds] if is_chosen else []
    check_folders(runs)
    return runs, chosen


def _read_csv(flag: str, path: str, study: Study) -> list[Point]:
    """Read the evaluations in a flag's file, or exit."""
    try:
        points = from_csv(locate(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        fail(f"--{flag}={path} cannot be read: {error}")
    others = sorted({point.task for point in points} - set(study.tasks))
    if others:
        names = "; ".join(study.tasks)
        fail(f"--{flag}={path} has evaluations of {others[0]}; the study's tasks are {names}.")
    return points


def _read_beside(study: Study, labels: Iterable[str]) -> list[Point]:
    """Read the evaluations in the file of --beside, with other labels than these, or exit."""
    if _BESIDE.value is None:
        return []
    points = _read_csv("beside", _BESIDE.value, study)
    taken = {point.setting for point in points}.intersection(labels)
    if taken:
        fail(f"--beside={_BESIDE.value} has evaluations of {min(taken)}, a curve that is there.")
    return points


def _write_results(
    file: pathlib.Path,
    study: Study,
    points: Sequence[Point],
    screen: Screen,
    unfinished: Sequence[str] = (),
    order: Sequence[str] = (),
) -> bool:
    """Print and write table, evaluations and figure; return whether they could be written.

    Args:
      file: path of the files, without suffix.
      study: what is shown.
      points: its evaluations.
      screen: where the table is shown.
      unfinished: names of runs that have not finished.
      order: labels in the order of their colours, behind those that the folder has recorded.
    """
    table = to_markdown(study, points)
    if unfinished:
        names = "; ".join(unfinished[:_MAX_NAMES]) + "; ..." * (len(unfinished) > _MAX_NAMES)
        table += f"\nNot finished ({len(unfinished)}), scored by what there is: {names}\n"
    screen.print_table(table)
    folder, name = file.parent, file.name
    texts = {f"{name}.md": table, f"{name}.csv": to_csv(points)}
    drawn = study.title, make_panels(study, points), study.x, [*read_labels(folder), *order]
    return several_runs.write_results(
        folder, texts, lambda: draw_study(folder, name, *drawn), screen
    )
