r"""Trains several runs and compares them: a study, a grid of settings, or a search.

  python launch/study.py [STUDY] [FLAGS]

STUDY is a Python file with a function `get_study`, which names the settings, the tasks and how long
a run is; or an experiment of the paper: the number of a figure, or another name in configs/paper/.

Without STUDY fields of the config get several values. A grid trains all combinations with every
seed; a range makes a search, in which Optuna chooses a combination for each run by what earlier
runs have shown, and a run that is worse than the median of the others at the same actor steps is
stopped. --runs makes a search of single values, too.

  --config.agent.learning_rate=0.001,0.004     single values; (64,64),(128,) are two tuples
  --config.agent.learning_rate=log:1e-5:1e-2   a range, drawn on a logarithmic scale
  --config.agent.n_step=1:10                   a range; whole numbers for a field of whole numbers

The folder holds <task>/<setting>/seed_<i>/, in a search run_<i>/, the work directories of the runs
(output.log is what a run printed), and in the end results.md and results.csv, a row for each
setting on each task, evaluations.csv, every evaluation of every run, and returns.png and .svg; in a
search importances.png and .svg, and study.db, which optuna-dashboard shows.

A run that fails does not stop the others; the exit code is 1 then. Given again with the same
--workdir, after Ctrl-C for example, the command resumes the runs that have not reached their end,
and trains those that were added: seeds, values, settings, runs of a search. --tasks and --settings
choose which to train, by regular expressions that are searched in the names; tables and figures
show all runs in the folder of the settings, tasks and values that the command names. If they had
more before, those evaluations are kept in evaluations-2.csv, with a message.

--draw makes tables and figures anew from the evaluations in a CSV file, and trains nothing; --tasks
and --settings choose what is shown then. With the folder's own evaluations.csv it replaces the
tables and figures there, and that file stays; the runs there have to be those of the study.
--beside adds evaluations of other programs, or of an earlier study, in a CSV file with the same
columns. --x chooses another of these columns as the horizontal axis, as figure 10 does with figure
2's.

Examples:
  python launch/study.py --config=apex_dqn_cartpole --seeds=5
  python launch/study.py --config=apex_dqn_cartpole --config.agent.learning_rate=0.001,0.004 \
      --config.agent.mlp_hidden_sizes='(64,64),(128,)' --seeds=3 --parallel=2
  python launch/study.py --config=apex_dqn_cartpole --runs=20 --minutes=60 --parallel=2 \
      --config.agent.learning_rate=log:1e-4:1e-1 --config.agent.n_step=1:10 \
      --config.run.max_actor_steps=50_000 --config.run.target_return=None
  python launch/study.py my_study.py --seeds=5 --workdir=sweeps/my_study
  python launch/study.py 4 --tasks=Asterix --settings='^(4|256) ' --workdir=sweeps/part
  python launch/study.py heads --draw=results/paper/heads.csv --workdir=figures
"""

import contextlib
import math
import os
import pathlib
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any, NoReturn

from absl import flags
from rich.console import Console

from apex_agents.command_line import commands
from apex_agents.command_line.arguments import (
    define_wandb,
    fail,
    leave,
    locate,
    mistakes_end_command,
    warn,
)
from apex_agents.command_line.fields import find_idle_fields
from apex_agents.command_line.settings import Settings, run_with_settings
from apex_agents.config import ExperimentConfig, without_other_target
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_SUCCESS
from apex_agents.fields import RANGE
from apex_agents.metrics import columns
from apex_agents.plotting import draw_search, draw_study
from apex_agents.plotting.run_groups import shorten
from apex_agents.presets import CONFIGS, execute_file, is_file
from apex_agents.registry import find_agent
from apex_agents.runs.config_file import CONFIG_FILE
from apex_agents.runs.files import hold_lock
from apex_agents.runs.setting_labels import read_labels, record_labels
from apex_agents.runs.workdir import LOCK_FILE, check_path
from apex_agents.studies import results
from apex_agents.studies.plan import check_run, find_targets, make_grid, plan_study
from apex_agents.studies.runner import FAILED, FINISHED, STOPPED, Runner, Screen, train
from apex_agents.studies.study import (
    LABEL,
    PROGRESS,
    Cells,
    Run,
    Setting,
    Study,
    check_study,
)
from apex_agents.validation import closest, require

_DEFAULT_CONFIG = "apex_dqn_cartpole"

_SEEDS = flags.DEFINE_integer(
    "seeds",
    None,
    "Runs of each setting on each task; by default the study's, 5 of a grid.",
    1,
    10_000,
)
_PARALLEL = flags.DEFINE_integer(
    "parallel", 1, "Runs at once, each on its share of the cores.", 1, 1000
)
_RUNS = flags.DEFINE_integer(
    "runs", 20, "Runs of a search, those of earlier commands included.", 1, 100_000
)
_MINUTES = flags.DEFINE_float(
    "minutes", math.inf, "Minutes after which the runs are stopped; they can be resumed.", 0.0
)
_TASKS = flags.DEFINE_string("tasks", "", "Only tasks in which this regular expression is found.")
_SETTINGS = flags.DEFINE_string(
    "settings", "", "Only settings in whose names this regular expression is found."
)
_DRAW = flags.DEFINE_string("draw", None, "CSV file of evaluations to make tables and figure from.")
_BESIDE = flags.DEFINE_string("beside", None, "CSV file of further evaluations to show.")
_X = flags.DEFINE_enum("x", None, PROGRESS, "Horizontal axis; by default the study's.")
# Launchpad defines a flag of this name with other types.
_LAUNCH_TYPE = flags.DEFINE_enum(
    "lp_launch_type",
    "local_mp",
    ("local_mp", "local_mt"),
    "Where the nodes of each run are: in processes, or in threads of one process, with which a "
    "short run on one core takes less time.",
    allow_override=True,
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of all runs, a new one or one to resume; by default one in sweeps/."
)
_WANDB = define_wandb()


def main() -> None:
    """Run the command, and exit."""
    run_with_settings(_run, _DEFAULT_CONFIG, has_variants=True)


def _run(settings: Settings) -> NoReturn:
    texts = [text for texts in settings.variants.values() for text in texts]
    name = f"{settings.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    if settings.arguments:
        _refuse("a study", [_RUNS.name] if _RUNS.present else [])
        _refuse("a study, whose file names configs and fields", settings.given)
        with mistakes_end_command():
            file = _find_study(" ".join(settings.arguments))
            study = execute_file(file, Study, "get_study")
            try:
                check_study(study)
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from error
        _compare(study, {}, file.parent, file.stem)
    elif _RUNS.present or any(map(RANGE.fullmatch, texts)):
        of_grids = (_SEEDS, _TASKS, _SETTINGS, _DRAW, _BESIDE, _X)
        _refuse("a search", [flag.name for flag in of_grids if flag.present])
        _search(settings, name)
    else:
        with mistakes_end_command():
            study, cells = make_grid(
                settings.path, settings.config, settings.overrides, settings.variants
            )
        _compare(study, cells, settings.path.parent, name)


def _refuse(kind: str, given: Iterable[str]) -> None:
    for name in given:
        fail(f"--{name} is no flag of {kind}.")


def _find_study(value: str) -> pathlib.Path:
    """Return the file that the argument STUDY names; a ValueError lists the known names."""
    path = pathlib.Path(os.path.expanduser(value))
    known = sorted(file.stem for file in (CONFIGS / "paper").glob("[!_]*.py"))
    for file in (path, CONFIGS / "paper" / f"figure_{value}.py", CONFIGS / "paper" / f"{value}.py"):
        if is_file(file):
            return file
    names = [name.removeprefix("figure_") for name in known]
    raise ValueError(
        f"{value} is neither the Python file of a study nor one of {', '.join(names)}; the "
        f"closest: {closest(value, known, names)}."
    )


def _compare(study: Study, cells: Cells, source: pathlib.Path, name: str) -> NoReturn:
    """Train the runs of a study, or draw saved evaluations of it, and exit.

    Args:
      study: the study.
      cells: values of its settings in tables.
      source: folder in which the configs of its settings are looked up.
      name: name of the folder in sweeps/ that is used without --workdir.
    """

    def check(label: str, config: ExperimentConfig, fields: Collection[str]) -> None:
        # Those of a grid are flags, of which `run_with_settings` has warned.
        idle = find_idle_fields(config, () if cells else fields)
        messages = {f"setting {label!r}: {one.removeprefix('--config.')}" for one in idle}
        for message in sorted(messages - warned):
            warn(message)
        warned.update(messages)
        _check(config)

    warned: set[str] = set()
    study = study._replace(x=_X.value or study.x)
    saved = _read_saved("draw", _DRAW.value, study, ())
    taken = [*study.settings, *(point.setting for point in saved)]
    saved += _read_saved("beside", _BESIDE.value, study, taken)
    known = dict.fromkeys([*study.settings, *(point.setting for point in saved)])
    labels = _choose("settings", _SETTINGS.value, known)
    part = study._replace(
        tasks=_choose("tasks", _TASKS.value, study.tasks),
        settings={label: study.settings[label] for label in study.settings if label in labels},
        num_seeds=_SEEDS.value or study.num_seeds,
    )
    drawn = None if _DRAW.value is None else locate(_DRAW.value).resolve()
    runs: list[Run] = []
    with _preparing_folder(name) as folder:
        is_own = drawn == (folder / results.EVALUATIONS_FILE).resolve()
        if drawn is None or is_own:
            trained = part if drawn is None else part._replace(tasks=())
            runs = plan_study(study, trained, source, folder, _make_command, check, cells)
        else:
            _check_folder_of_figures(folder, drawn)
        targets = find_targets(study if drawn is None else part, source)
        lock = _lock_folder(folder)
        record_labels(folder, {run.folder.parent: run.label for run in runs if run.setting})
    screen = Screen(Console())
    screen.print(f"Folder: {folder}")
    runner = Runner([run for run in runs if run.is_wanted], _PARALLEL.value)
    train(runner, screen, 60 * _MINUTES.value)
    endings = {
        run: runner.endings.get(run) or _find_ending(run)
        for run in runs
        if run.is_wanted or run.open_folder()
    }
    if drawn is None:
        points = [*(point for run in endings for point in results.read_points(run)), *saved]
    else:
        study, tasks = part, part.tasks
        points = [point for point in saved if point.task in tasks and point.setting in labels]
        endings = {
            run: end for run, end in endings.items() if run.task in tasks and run.label in labels
        }
    groups = results.make_groups(study, points, endings, [*read_labels(folder), *taken], targets)

    def draw() -> list[pathlib.Path]:
        return draw_study(groups, folder, study.title, study.x)

    tables = results.make_tables(study, points, endings, cells, targets)
    if is_own:  # The file stays, with evaluations that are not shown.
        del tables[results.EVALUATIONS_FILE]
    is_written = results.write_results(folder, tables, draw, screen)
    unfinished = {run: end for run, end in runner.endings.items() if end != FINISHED}
    for run, ending in unfinished.items():
        screen.print(f"{run.name}: {ending}, see {run.log}")
    _leave(runner, lock, is_written and not unfinished)


def _find_ending(run: Run) -> str:
    """Return how a run has ended that this command does not train."""
    has_failed = run.summary().get("exit_code") == EXIT_FAILURE
    return FINISHED if run.is_finished else FAILED if has_failed else STOPPED


def _choose(flag: str, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names in which a regular expression is found, or exit if there are none."""
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        fail(f"--{flag}={pattern} is no regular expression: {error}")
    if not chosen:
        fail(f"--{flag}={pattern} is found in none of: {'; '.join(names)}.")
    return chosen


def _read_saved(
    flag: str, path: str | None, study: Study, taken: Collection[str]
) -> list[results.Point]:
    """Read the evaluations in the file of a flag, none without it, or exit; see `read_saved`."""
    if path is None:
        return []
    try:
        return results.read_saved(locate(path), study, taken)
    except ValueError as error:
        fail(f"--{flag}={path} {error}")


def _check_folder_of_figures(folder: pathlib.Path, drawn: pathlib.Path) -> None:
    """Raise a ValueError if a folder has tables and figures that are not to be replaced."""
    patterns = ("*/seed_*", "*/*/seed_*")
    if drawn.parent == folder.resolve() or any(any(folder.glob(one)) for one in patterns):
        raise ValueError(f"{folder} holds the study's own figure; name another --workdir.")


def _check(config: ExperimentConfig) -> None:
    warning = check_run(config, _PARALLEL.value)
    if warning is not None:
        warn(warning)


def _make_command(
    file: pathlib.Path, config: ExperimentConfig, fields: Mapping[str, Any]
) -> list[str]:
    """Return the command that trains with some fields changed, but for seed and work directory."""
    command = commands.train_argv(find_agent(config.agent))
    wandb = [] if _WANDB.value is None else [f"--wandb={_WANDB.value}"]
    changes = [f"--config.{path}={value}" for path, value in fields.items()]
    flags_ = [f"--lp_launch_type={_LAUNCH_TYPE.value}", *wandb, f"--config={file}", *changes]
    return [*command, *flags_]


def _search(settings: Settings, name: str) -> NoReturn:
    """Search for settings, and exit."""
    from apex_agents.studies import search  # Optuna takes a second.

    config, seed = settings.config, settings.config.run.seed
    task, max_steps = config.environment.task, config.run.max_actor_steps or 0
    with _preparing_folder(name) as folder:
        space = search.make_space(config, settings.variants)
        allowed = "a number: runs are compared at equal actor steps, up to this limit"
        require(max_steps > 0, "run.max_actor_steps", max_steps or None, allowed)
        _check(config)
        lock = _lock_folder(folder)
        storage = search.open_storage(folder, space, config)
    names = dict(zip(space, shorten(list(space)), strict=True))

    def plan_run(number: int, fields: Mapping[str, Any]) -> Run:
        workdir = folder / f"run_{number:03d}"
        setting = ((LABEL, workdir.name), *((names[path], v) for path, v in fields.items()))
        command = _make_command(settings.path, config, {**settings.overrides, **fields})
        run = Run(task, setting, seed, workdir, (*command, f"--workdir={workdir}"))
        record_labels(folder, {workdir: run.label})
        return run

    screen = Screen(Console())
    screen.print(f"Folder: {folder}")
    num_ended = sum(trial.state.is_finished() for trial in storage.trials)
    runner = Runner([], _PARALLEL.value, _RUNS.value - num_ended)
    target = without_other_target(config).run.target_return
    budget = search.Budget(_RUNS.value, max_steps, target)
    step = search.Search(storage, space, runner, plan_run, budget, screen.print).step
    train(runner, screen, 60 * _MINUTES.value, step)
    try:
        ranked, shares = search.rank_trials(storage), search.find_importances(storage)
    except search.StorageInternalError as error:
        fail(f"{folder}/study.db cannot be used: {error.__cause__ or error}", EXIT_FAILURE)
    endings = {plan_run(trial.number, trial.params): ending for trial, ending, _ in ranked}
    found = {run.label: Setting(str(settings.path), {}) for run in endings}
    cells = {run.label: dict(run.setting) for run in endings}
    study = Study("", found, [task], {}, columns.ACTOR_STEPS)
    points = [point for run in endings for point in results.read_points(run)]
    importances = {names[path]: share for path, share in shares.items()}
    scores = {trial.number: score for trial, _, score in ranked}

    def draw() -> list[pathlib.Path]:
        return draw_search(importances, [scores[number] for number in sorted(scores)], folder)

    targets = {} if target is None else {(task, label): target for label in found}
    tables = results.make_tables(study, points, endings, cells, targets)
    is_written = results.write_results(folder, tables, draw, screen)
    has_failed = FAILED in runner.endings.values()  # Not in an earlier command.
    _leave(runner, lock, is_written and FINISHED in endings.values() and not has_failed)


@contextlib.contextmanager
def _preparing_folder(name: str) -> Iterator[pathlib.Path]:
    """Yield the absolute path of the folder for all runs; mistakes in it end the command.

    Args:
      name: name of the folder in sweeps/ that is used without --workdir.
    """
    folder = locate(_WORKDIR.value or f"sweeps/{name}")
    try:
        if (folder / CONFIG_FILE).exists():
            fail(f"The folder {folder} holds a single run; name another one.")
        with mistakes_end_command():
            yield folder
    except BlockingIOError:
        fail(f"The folder {folder} is in use: another command trains in it.")
    except OSError as error:
        fail(f"The folder {folder} cannot be written: {error.strerror}.")


def _lock_folder(folder: pathlib.Path) -> IO[str]:
    """Make the folder for all runs and keep other commands out of it until the file is closed."""
    check_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return hold_lock(folder / LOCK_FILE, 0.0)


def _leave(runner: Runner, lock: IO[str], is_complete: bool) -> NoReturn:
    """Release the folder, and exit as the signal says that stopped the runs, if one did."""
    lock.close()
    if runner.signals:
        leave(128 + runner.signals[0])
    leave(EXIT_SUCCESS if is_complete else EXIT_FAILURE)
