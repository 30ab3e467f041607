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
show all that the folder holds.

--draw makes tables and figures anew from the evaluations in a CSV file, and trains nothing; --tasks
and --settings choose what is shown then. --beside adds those of other programs, or of an earlier
study, in a CSV file with the same columns. --x chooses another of these columns as the horizontal
axis, as figure 10 does with figure 2's.

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
import functools
import itertools
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

from absl import flags
from rich.console import Console

from apex_agents.checks import check_experiment
from apex_agents.command_line import commands
from apex_agents.command_line.arguments import define_wandb, fail, leave, locate, warn
from apex_agents.command_line.settings import (
    RANGE,
    Settings,
    change_fields,
    execute_file,
    find_config,
    is_file,
    load_config_file,
    run_with_settings,
)
from apex_agents.config import ExperimentConfig
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_SUCCESS
from apex_agents.experiment import make_experiment
from apex_agents.metrics import columns
from apex_agents.nodes.host import available_memory, memory_warning
from apex_agents.plotting import draw_search, draw_study
from apex_agents.plotting.run_groups import FREE_FIELDS, TASK, shorten
from apex_agents.presets import CONFIGS
from apex_agents.registry import find_agent
from apex_agents.runs.config_file import CONFIG_FILE
from apex_agents.runs.files import hold_lock, replace_file
from apex_agents.runs.setting_labels import read_labels, record_labels
from apex_agents.runs.workdir import LOCK_FILE, check_path
from apex_agents.studies import results
from apex_agents.studies.runner import FINISHED, STOPPED, Runner, Screen, train
from apex_agents.studies.study import LABEL, PROGRESS, Run, Setting, Study, check_study, plan_runs
from apex_agents.validation import closest, get_field, require

_DEFAULT_CONFIG = "apex_dqn_cartpole"
_SEEDS_OF_GRID = 5
_Texts = Mapping[str, Mapping[str, str]]

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
        _refuse_flags("a study", _RUNS)
        for field in (*settings.overrides, *settings.variants):
            fail(f"--config.{field} is given to a study, whose settings are in its file.")
        file = _find_study(" ".join(settings.arguments))
        read = functools.cache(functools.partial(_read_settings, file.parent))
        _compare(_read_study(file), {}, file.stem, read)
    elif _RUNS.present or any(map(RANGE.fullmatch, texts)):
        _refuse_flags("a search", _SEEDS, _TASKS, _SETTINGS, _DRAW, _BESIDE, _X)
        _search(settings, name)
    else:
        _compare(*_make_grid(settings), name, lambda config: settings._replace(overrides={}))


def _refuse_flags(kind: str, *defined: flags.FlagHolder[Any]) -> None:
    for flag in defined:
        if flag.present:
            fail(f"--{flag.name} is no flag of {kind}.")


def _find_study(value: str) -> pathlib.Path:
    """Return the file that the argument STUDY names, or exit."""
    path = pathlib.Path(os.path.expanduser(value))
    known = sorted(file.stem for file in (CONFIGS / "paper").glob("[!_]*.py"))
    for file in (path, CONFIGS / "paper" / f"figure_{value}.py", CONFIGS / "paper" / f"{value}.py"):
        if is_file(file):
            return file
    names = [name.removeprefix("figure_") for name in known]
    fail(
        f"{value} is neither the Python file of a study nor one of {', '.join(names)}; the "
        f"closest: {closest(value, known, names)}."
    )


def _read_study(file: pathlib.Path) -> Study:
    """Return the study of a file, or exit."""
    study = execute_file("study", file, Study, "get_study")
    try:
        check_study(study)
    except ValueError as error:
        fail(f"{file}: {error}")
    return study


def _make_grid(settings: Settings) -> tuple[Study, dict[str, dict[str, str]]]:
    """Return the study of all combinations of values, and the values of each label, or exit."""
    values: dict[str, list[Any]] = {TASK: [settings.config.environment.task]}
    for path, texts in settings.variants.items():
        if path in FREE_FIELDS:
            fail(
                f"--config.{path}={','.join(texts)} has several values; seeds and limits of the "
                "runs make no settings. --seeds is the number of seeds."
            )
        try:
            read = [get_field(change_fields(settings.config, {path: t}), path) for t in texts]
        except ValueError as error:
            fail(error)
        values[path] = list({str(value): value for value in read}.values())
    tasks = values.pop(TASK)
    found, texts_of_labels = {}, {}
    for combination in itertools.product(*values.values()):
        parts = dict(zip(shorten([*values]), map(str, combination), strict=True))
        label = ", ".join(f"{name}={text}" for name, text in parts.items())
        fields = {**settings.overrides, **dict(zip(values, combination, strict=True))}
        found[label], texts_of_labels[label] = Setting(str(settings.path), fields), parts
    return Study("", found, tasks, {}, columns.ACTOR_STEPS, _SEEDS_OF_GRID), texts_of_labels


def _read_settings(folder: pathlib.Path, config: str) -> Settings:
    """Return the settings that a setting names; they are looked up in the folder of the study."""
    file = find_config(config, folder=folder, given="a setting has the config ")
    return Settings(load_config_file(file), file, {}, {})


def _compare(study: Study, texts: _Texts, name: str, read: Callable[[str], Settings]) -> NoReturn:
    """Train the runs of a study, or draw saved evaluations of it, and exit.

    Args:
      study: the study.
      texts: values by the names of their columns of each setting that is more than a label.
      name: name of the folder in sweeps/ that is used without --workdir.
      read: returns the settings of the config that a setting names.
    """
    study = study._replace(x=_X.value or study.x)
    saved = _read_file("draw", _DRAW.value, study, ())
    taken = [*study.settings, *(point.setting for point in saved)]
    saved += _read_file("beside", _BESIDE.value, study, taken)
    known = dict.fromkeys([*study.settings, *(point.setting for point in saved)])
    labels = _choose("settings", _SETTINGS.value, known)
    part = study._replace(
        tasks=_choose("tasks", _TASKS.value, study.tasks),
        settings={label: study.settings[label] for label in study.settings if label in labels},
        num_seeds=_SEEDS.value or study.num_seeds,
    )
    runs: list[Run] = []
    with _preparing_folder(name) as folder:
        if _DRAW.value is None:
            runs = _plan(study, part, texts, folder, read)
        else:
            _check_folder_of_figures(folder, locate(_DRAW.value))
            study = part
            saved = [p for p in saved if p.task in part.tasks and p.setting in labels]
        lock = _lock_folder(folder)
        record_labels(folder, {run.folder.parent: run.label for run in runs if run.setting})
    screen = Screen(Console())
    screen.print(f"Folder: {folder}")
    runner = Runner([run for run in runs if run.is_wanted], _PARALLEL.value)
    train(runner, screen, 60 * _MINUTES.value)
    endings = {
        run: runner.endings.get(run, FINISHED if run.is_finished else STOPPED)
        for run in runs
        if run.is_wanted or run.open_folder()
    }
    points = [*(point for run in endings for point in results.read_points(run)), *saved]
    groups = results.make_groups(study, points, endings, [*read_labels(folder), *taken])

    def draw() -> list[pathlib.Path]:
        return draw_study(groups, folder, study.title, study.x)

    is_written = _write(folder, study, points, endings, draw, screen)
    unfinished = {run: end for run, end in runner.endings.items() if end != FINISHED}
    for run, ending in unfinished.items():
        screen.print(f"{run.name}: {ending}, see {run.log}")
    _leave(runner, lock, is_written and not unfinished)


def _choose(flag: str, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names in which a regular expression is found, or exit if there are none."""
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        fail(f"--{flag}={pattern} is no regular expression: {error}")
    if not chosen:
        fail(f"--{flag}={pattern} is found in none of: {'; '.join(names)}.")
    return chosen


def _read_file(
    flag: str, path: str | None, study: Study, taken: Collection[str]
) -> list[results.Point]:
    """Read the evaluations in the file of a flag, none without it; exit if they do not fit.

    Args:
      flag: name of the flag.
      path: its value.
      study: the study that the evaluations are shown with.
      taken: labels that the evaluations must not have.
    """
    if path is None:
        return []
    try:
        points = results.from_csv(locate(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        fail(f"--{flag}={path} cannot be read: {error}")
    for point in points:
        if point.task not in study.tasks:
            tasks = "; ".join(study.tasks)
            fail(f"--{flag}={path} has evaluations of {point.task}; the study's tasks are {tasks}.")
        if point.setting in taken:
            fail(f"--{flag}={path} has evaluations of {point.setting}, a curve that is there.")
    return points


def _check_folder_of_figures(folder: pathlib.Path, drawn: pathlib.Path) -> None:
    """Raise a ValueError if a folder has tables and figures that are not to be replaced."""
    is_own = drawn.resolve().parent == folder.resolve()
    if is_own or any(folder.glob("*/seed_*")) or any(folder.glob("*/*/seed_*")):
        raise ValueError(f"{folder} holds the study's own figure; name another --workdir.")


def _plan(
    study: Study,
    part: Study,
    texts: _Texts,
    folder: pathlib.Path,
    read: Callable[[str], Settings],
) -> list[Run]:
    """Plan the runs of a study, of which those of a part are wanted; see `_compare`.

    Raises:
      ValueError: a run is impossible, or two would share a folder.
    """
    runs: dict[pathlib.Path, Run] = {}
    for task, (label, setting) in itertools.product(study.tasks, study.settings.items()):
        given = f"setting {label!r}: " if label else ""
        settings = read(str(setting.config))
        fields = {**study.fields, **setting.fields, TASK: task}
        is_wanted = task in part.tasks and label in part.settings
        try:
            config = change_fields(settings.config, fields)
            if is_wanted:
                _check_config(config)
            command = _make_command(settings, fields)
            parts = texts.get(label, {LABEL: label})
            planned = plan_runs(config, parts, part.num_seeds, folder, command)
        except ValueError as error:
            raise ValueError(f"{given}{error}") from error
        for run in planned:
            other = runs.setdefault(run.folder, run._replace(is_wanted=run.is_wanted and is_wanted))
            if other.name != run.name:
                raise ValueError(
                    f"{other.name} and {run.name} would share the folder {run.folder}, in whose "
                    "name all but letters, digits, '.', '-' and '_' is left out; name them so that "
                    "they differ."
                )
    return [*runs.values()]


def _check_config(config: ExperimentConfig) -> None:
    """Raise a ValueError if a run cannot learn; warn if the replay exceeds its share of memory."""
    experiment = make_experiment(config)
    spec = check_experiment(experiment)
    replay_bytes = experiment.builder.estimate_replay_bytes(spec)
    memory = available_memory() // _PARALLEL.value
    warning = memory_warning(experiment.data_flow(), replay_bytes, memory)
    if warning is not None:
        share = f" (It is one of {_PARALLEL.value} at once.)" if _PARALLEL.value > 1 else ""
        warn(f"{config.environment.task}: {warning}{share}")


def _make_command(settings: Settings, fields: Mapping[str, Any]) -> list[str]:
    """Return the command that trains with some fields changed, but for seed and work directory."""
    command = commands.train_argv(find_agent(settings.config.agent))
    wandb = [] if _WANDB.value is None else [f"--wandb={_WANDB.value}"]
    return [*command, f"--lp_launch_type={_LAUNCH_TYPE.value}", *wandb, *settings.to_flags(fields)]


def _search(settings: Settings, name: str) -> NoReturn:
    """Search for settings, and exit."""
    from apex_agents.studies import search  # Optuna takes a second.

    task, max_steps = settings.config.environment.task, settings.config.run.max_actor_steps or 0
    with _preparing_folder(name) as folder:
        space = _read_space(settings)
        allowed = "a number: runs are compared at equal actor steps, up to this limit"
        require(max_steps > 0, "run.max_actor_steps", max_steps or None, allowed)
        _check_config(settings.config)
        lock = _lock_folder(folder)
        storage = search.open_storage(folder, space, settings.config)
    names = dict(zip(space, shorten(list(space)), strict=True))

    def plan_run(number: int, fields: Mapping[str, Any]) -> Run:
        workdir = folder / f"run_{number:03d}"
        setting = ((LABEL, workdir.name), *((names[path], v) for path, v in fields.items()))
        argv = (*_make_command(settings, fields), f"--workdir={workdir}")
        run = Run(task, setting, settings.config.run.seed, workdir, argv)
        record_labels(folder, {workdir: run.label})
        return run

    screen = Screen(Console())
    screen.print(f"Folder: {folder}")
    num_ended = sum(trial.state.is_finished() for trial in storage.trials)
    runner = Runner([], _PARALLEL.value, _RUNS.value - num_ended)
    budget = search.Budget(_RUNS.value, max_steps)
    step = search.Search(storage, space, runner, plan_run, budget, screen.print).step
    train(runner, screen, 60 * _MINUTES.value, step)
    try:
        ranked, shares = search.rank_trials(storage), search.find_importances(storage)
    except search.StorageInternalError as error:
        fail(f"{folder}/study.db cannot be used: {error.__cause__ or error}", EXIT_FAILURE)
    endings = {plan_run(trial.number, trial.params): ending for trial, ending, _ in ranked}
    found = {run.label: Setting(str(settings.path), {}) for run in endings}
    study = Study("", found, [task], {}, columns.ACTOR_STEPS)
    points = [point for run in endings for point in results.read_points(run)]
    importances = {names[path]: share for path, share in shares.items()}
    scores = {trial.number: score for trial, _, score in ranked}

    def draw() -> list[pathlib.Path]:
        return draw_search(importances, [scores[number] for number in sorted(scores)], folder)

    is_written = _write(folder, study, points, endings, draw, screen)
    _leave(runner, lock, is_written and FINISHED in endings.values())


def _read_space(settings: Settings) -> dict[str, Any]:
    """Return the values to be tried of each field; a ValueError if a run cannot have them."""
    from apex_agents.studies.search import make_distribution

    space = {}
    for path, texts in settings.variants.items():
        name = f"--config.{path}"
        require(path not in FREE_FIELDS, name, ",".join(texts), "a single value in a search")
        match = RANGE.fullmatch(texts[0]) if len(texts) == 1 else None
        ends = match.groups()[1:] if match else texts
        configs = [change_fields(settings.config, {path: text}) for text in ends]
        values = [get_field(config, path) for config in configs]
        try:
            space[path] = make_distribution(values, bool(match), bool(match and match[1]))
        except ValueError as error:
            raise ValueError(f"{name} is {texts[0]!r}; {error}.") from error
        for config in configs:
            config.validate()
    if not space:
        raise ValueError(
            "nothing to search for: give a field a range or several values, such as "
            "--config.agent.learning_rate=log:1e-5:1e-2."
        )
    return space


@contextlib.contextmanager
def _preparing_folder(name: str) -> Iterator[pathlib.Path]:
    """Yield the absolute path of the folder for all runs; mistakes in it end the command.

    Args:
      name: name of the folder in sweeps/ that is used without --workdir.
    """
    folder = locate(_WORKDIR.value or f"sweeps/{name}")
    try:
        if (folder / CONFIG_FILE).exists():
            raise ValueError(f"The folder {folder} holds a single run; name another one.")
        yield folder
    except ValueError as error:
        fail(error)
    except BlockingIOError:
        fail(f"The folder {folder} is in use: another command trains in it.")
    except OSError as error:
        fail(f"The folder {folder} cannot be written: {error.strerror}.")


def _lock_folder(folder: pathlib.Path) -> IO[str]:
    """Make the folder for all runs and keep other commands out of it until the file is closed."""
    check_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return hold_lock(folder / LOCK_FILE, 0.0)


def _write(
    folder: pathlib.Path,
    study: Study,
    points: Sequence[results.Point],
    endings: Mapping[Run, str],
    draw: Callable[[], Sequence[pathlib.Path]],
    screen: Screen,
) -> bool:
    """Print and write the results; return whether they could be written.

    Args:
      folder: folder of the study.
      study: what is shown.
      points: its evaluations.
      endings: how its runs have ended.
      draw: draws the figures and returns the paths of their files.
      screen: where the tables and the paths are shown.
    """
    rows = results.summarise(study, points, endings)
    table = results.to_markdown(rows, study.x)
    screen.print_table(table)
    texts = {
        "results.md": table,
        "results.csv": results.rows_to_csv([row.cells() for row in rows]),
        "evaluations.csv": results.to_csv(points),
    }
    try:
        for name, text in texts.items():
            replace_file(folder / name, text.encode())
        files = [*draw(), *(folder / name for name in texts)]
    except OSError as error:
        screen.print(f"error: {folder} cannot be written: {error.strerror}")
        return False
    except Exception as error:  # Matplotlib may raise anything; the tables are already written.
        screen.print(f"error: no figure was drawn: {type(error).__name__}: {error}")
        return False
    for file in files:
        screen.print(str(file))
    return True


def _leave(runner: Runner, lock: IO[str], is_complete: bool) -> NoReturn:
    """Release the folder, and exit as the signal says that stopped the runs, if one did."""
    lock.close()
    if runner.signals:
        leave(128 + runner.signals[0])
    leave(EXIT_SUCCESS if is_complete else EXIT_FAILURE)
