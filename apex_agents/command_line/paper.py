r"""Runs an experiment of the paper, or one like it: settings are compared, with several seeds.

Each figure is a file in configs/paper/, which names the settings, the tasks and how long a run is.
--figure is the number of one, or a file of your own with a function `get_study`.

The folder holds <task>/<setting>/seed_<i>/, the work directories of the runs, and in the end
<figure>.csv, every evaluation of every run, <figure>.md, the table of the scores, and <figure>.png
and <figure>.svg.

Given again, after Ctrl-C for example, the command resumes the runs that have not reached their end.
--draw makes table and figure anew from the evaluations in a CSV file, and trains nothing. --beside
adds those of other programs, or of an earlier study, in a CSV file with the same columns. --x
chooses another of these columns as the horizontal axis, as figure 10 does with figure 2's. --tasks
and --settings choose a part of the study, by regular expressions that are searched in the names.

Examples:
  python launch/paper.py --figure=4 --parallel=2
  python launch/paper.py --figure=my_study.py --seeds=5 --workdir=sweeps/my_study
  python launch/paper.py --figure=4 --tasks=Asterix --settings='^(4|256) ' --workdir=sweeps/part
  python launch/paper.py --figure=heads --draw=results/paper/heads.csv --workdir=figures
"""

import pathlib
import re
from collections.abc import Iterable, Sequence

from absl import app, flags
from rich.console import Console

from apex_agents.command_line import several_runs
from apex_agents.command_line.errors import fail, leave, parse_flags, refuse_arguments
from apex_agents.command_line.settings import (
    Settings,
    change_fields,
    execute_file,
    find_config,
    load_config_file,
)
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_SUCCESS
from apex_agents.plotting import draw_study
from apex_agents.plotting.run_groups import TASK
from apex_agents.presets import CONFIGS
from apex_agents.sweep.plan import Run, plan_runs
from apex_agents.sweep.screen import Screen
from apex_agents.sweep.study import (
    X_COLUMNS,
    Point,
    Study,
    from_csv,
    make_panels,
    read_points,
    to_csv,
    to_markdown,
)
from apex_agents.validation import closest, closest_field, field_paths

_FIGURE = flags.DEFINE_string(
    "figure", None, "Number of a figure, another name in configs/paper/, or a Python file."
)
_SEEDS = flags.DEFINE_integer("seeds", None, "Runs of each setting; by default the study's.", 1)
_DRAW = flags.DEFINE_string("draw", None, "CSV file to make table and figure from.")
_X = flags.DEFINE_enum("x", None, X_COLUMNS, "Horizontal axis; by default the study's.")
_BESIDE = flags.DEFINE_string("beside", None, "CSV file of further evaluations to show.")
_TASKS = flags.DEFINE_string("tasks", "", "Only tasks in which this regular expression is found.")
_SETTINGS = flags.DEFINE_string("settings", "", "The same for the names of settings.")
flags.adopt_module_key_flags(several_runs)


def main() -> None:
    """Run the command, and exit."""
    app.run(_run, flags_parser=parse_flags)


def _run(argv: Sequence[str]) -> None:
    refuse_arguments(argv)
    path = _find_study(_FIGURE.value or "")
    study = execute_file("figure", path, Study, "get_study")
    tasks = _choose("tasks", _TASKS.value, study.tasks)
    settings = _choose("settings", _SETTINGS.value, study.settings)
    study = study._replace(
        x=_X.value or study.x,
        tasks=tuple(tasks),
        settings={label: study.settings[label] for label in settings},
    )
    screen = Screen(Console())
    with several_runs.preparing_folder(path.stem) as folder:
        beside = [] if _BESIDE.value is None else _read_csv("beside", _BESIDE.value)
        if _DRAW.value is not None:
            is_own = pathlib.Path(_DRAW.value).expanduser().absolute().parent == folder
            if is_own and (_X.value or _BESIDE.value or _TASKS.value or _SETTINGS.value):
                raise ValueError(f"{folder} holds the study's own figure; name another --workdir.")
            points = [*_read_csv("draw", _DRAW.value), *beside]
            folder.mkdir(parents=True, exist_ok=True)
            is_written = _write_results(folder, path.stem, study, points, screen)
            leave(EXIT_SUCCESS if is_written else EXIT_FAILURE)
        labels = _plan(study, folder)
        lock = several_runs.lock_folder(folder)
    screen.print(f"Folder: {folder}")

    def write(endings: Iterable[Run]) -> bool:
        points = [point for run in endings for point in read_points(labels[run], run)]
        return _write_results(folder, path.stem, study, [*points, *beside], screen)

    several_runs.train_to_end([*labels], lock, screen, write)


def _find_study(value: str) -> pathlib.Path:
    """Return the file that --figure names, or exit."""
    path = pathlib.Path(value).expanduser()
    known = sorted(file.stem for file in (CONFIGS / "paper").glob("[!_]*.py"))
    for file in (path, CONFIGS / "paper" / f"figure_{value}.py", CONFIGS / "paper" / f"{value}.py"):
        if value and file.is_file():
            return file
    names = ", ".join(name.removeprefix("figure_") for name in known)
    fail(
        f"--figure={value} is neither a file nor one of {names}; the closest: "
        f"{closest(value, known, names.split(', '))}."
    )


def _choose(flag: str, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names in which a regular expression is found, or exit if there are none."""
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        fail(f"--{flag}={pattern} is no regular expression: {error}")
    if not chosen:
        fail(f"--{flag}={pattern} is found in none of: {'; '.join(names)}.")
    return chosen


def _plan(study: Study, folder: pathlib.Path) -> dict[Run, str]:
    """Return the runs and the labels of their settings; a ValueError says what is impossible."""
    labels: dict[Run, str] = {}
    num_seeds = _SEEDS.value or study.num_seeds
    paths = {setting.config: find_config(setting.config) for setting in study.settings.values()}
    configs = {name: load_config_file(path) for name, path in paths.items()}
    for task in study.tasks:
        for label, (name, own_fields) in study.settings.items():
            fields = {**study.fields, TASK: task, **own_fields}
            config, path = configs[name], paths[name]
            for field in set(fields) - set(known := field_paths(config)):
                closest_one = closest_field(field, known)
                raise ValueError(f"{label}: {field} is no field; the closest: {closest_one}.")
            config = change_fields(config, fields)
            several_runs.check_config(config)
            command = several_runs.make_command(Settings(config, path, {}, {}), fields)
            setting = {"setting": label}
            labels |= dict.fromkeys(plan_runs(config, setting, num_seeds, folder, command), label)
    return labels


def _read_csv(flag: str, path: str) -> list[Point]:
    """Read the evaluations of the chosen tasks and settings in a flag's file, or exit."""
    try:
        points = from_csv(pathlib.Path(path).expanduser().read_text())
    except (OSError, ValueError) as error:
        fail(f"--{flag}={path} cannot be read: {error}")
    return [
        point
        for point in points
        if re.search(_TASKS.value, point.task) and re.search(_SETTINGS.value, point.setting)
    ]


def _write_results(
    folder: pathlib.Path, name: str, study: Study, points: Sequence[Point], screen: Screen
) -> bool:
    """Print and write table, evaluations and figure; return whether they could be written."""
    panels = make_panels(study, points)
    table = to_markdown(study, panels)
    screen.print_table(table)
    texts = {f"{name}.md": table, f"{name}.csv": to_csv(points)}
    return several_runs.write_results(
        folder, texts, lambda: draw_study(study.title, panels, study.x, folder, name), screen
    )
