"""The plan of a study: the settings of a grid, and the runs with their folders and commands."""

import contextlib
import dataclasses
import itertools
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from apex_agents.checks import check_experiment
from apex_agents.config import ExperimentConfig, LearnersConfig, reaches, without_other_target
from apex_agents.experiment import make_experiment
from apex_agents.fields import change_fields, find_field, get_field
from apex_agents.metrics import columns
from apex_agents.nodes.host import available_memory, memory_warning
from apex_agents.plotting.run_groups import FREE_FIELDS, LIMITS, TASK, flatten, shorten
from apex_agents.presets import find_config, load_config_file
from apex_agents.runs.config_file import CONFIG_FILE, check_same_run, to_values
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.results import read_evaluations
from apex_agents.studies.study import LABEL, Cells, Run, Setting, Study, Targets

# Returns the command that trains, but for seed and work directory: from a file of settings, their
# config, and texts of new values of its fields.
MakeCommand = Callable[[pathlib.Path, ExperimentConfig, Mapping[str, str]], Sequence[str]]

_SEEDS_OF_GRID = 5
# Fields that may change when a run is resumed, but make a different setting of a study.
_RUN_FIELDS = (
    "run.num_actors",
    "run.num_envs_per_actor",
    "run.num_replays",
    "run.num_learners",
    *(f"run.learners.{field.name}" for field in dataclasses.fields(LearnersConfig)),
    "run.evaluation.num_episodes",
    "environment.max_episode_steps",
)
# Limits that the run in a folder may already exceed, and the columns that count them.
_COUNTED_LIMITS = {
    "run.max_actor_steps": columns.ACTOR_STEPS,
    "run.max_learner_steps": columns.LEARNER_STEPS,
    "run.max_seconds": columns.WALL_TIME_SECONDS,
}


def make_grid(
    file: pathlib.Path,
    config: ExperimentConfig,
    fields: Mapping[str, Any],
    variants: Mapping[str, Sequence[str]],
) -> tuple[Study, Cells]:
    """Return the study of all combinations of values, and the values by their columns in tables.

    Args:
      file: file of settings.
      config: its config, changed by `fields`.
      fields: new values of fields, by dotted path.
      variants: texts of the values of fields that have several.

    Raises:
      ValueError: a field cannot have several values, or a text is no value of its field.
    """
    values: dict[str, list[Any]] = {TASK: [config.environment.task]}
    for path, texts in variants.items():
        if path in FREE_FIELDS:
            raise ValueError(
                f"--config.{path} is {','.join(texts)}; it has to be a single value: seeds and "
                "limits make no different settings. --seeds is the number of seeds."
            )
        read = [get_field(change_fields(config, [(path, text)]), path) for text in texts]
        values[path] = list({str(value): value for value in read}.values())
    tasks, names = values.pop(TASK), shorten([*values])
    settings, cells = {}, {}
    for combination in itertools.product(*values.values()):
        row = dict(zip(names, map(str, combination), strict=True))
        label = ", ".join(f"{name}={text}" for name, text in row.items())
        new = {**fields, **dict(zip(values, combination, strict=True))}
        settings[label], cells[label] = Setting(str(file), new), row
    return Study("", settings, tasks, {}, columns.ACTOR_STEPS, _SEEDS_OF_GRID), cells


def plan_study(  # noqa: PLR0913
    study: Study,
    part: Study,
    source: pathlib.Path,
    folder: pathlib.Path,
    make_command: MakeCommand,
    check: Callable[[str, ExperimentConfig, Collection[str]], None],
    cells: Cells,
) -> list[Run]:
    """Plan the runs of a study.

    Args:
      study: the study.
      part: tasks and settings that are trained, and the number of seeds.
      source: folder in which the configs of settings are looked up.
      folder: folder of all runs.
      make_command: returns the command of each run.
      check: called with the label and the config of each setting that is trained, and the fields
        that it changes; raises a ValueError.
      cells: values of the settings in tables.

    Raises:
      ValueError: a run is impossible, or two would share a folder.
    """
    runs: dict[pathlib.Path, Run] = {}
    for task, (label, setting) in itertools.product(study.tasks, study.settings.items()):
        fields = {**study.fields, **setting.fields, TASK: task}
        is_wanted = task in part.tasks and label in part.settings
        with _naming_setting(label):
            file, config, texts = _find_config(setting, fields, source)
            if is_wanted:
                check(label, config, fields)
            command = make_command(file, config, texts)
            values = cells.get(label, {LABEL: label})
            planned = plan_runs(config, values, part.num_seeds, folder, command)
        for run in planned:
            other = runs.setdefault(run.folder, run._replace(is_wanted=run.is_wanted and is_wanted))
            if other.name != run.name:
                raise ValueError(
                    f"{other.name} and {run.name} would share the folder {run.folder}, in whose "
                    "name all but letters, digits, '.', '-' and '_' is left out; name them so that "
                    "they differ."
                )
    return [*runs.values()]


def find_targets(study: Study, source: pathlib.Path) -> Targets:
    """Return the target returns of the runs of a study.

    Args:
      study: the study.
      source: folder in which the configs of settings are looked up.

    Raises:
      ValueError: a config cannot be read.
    """
    found = {}
    for task, (label, setting) in itertools.product(study.tasks, study.settings.items()):
        with _naming_setting(label):
            fields = {**study.fields, **setting.fields, TASK: task}
            _, config, _ = _find_config(setting, fields, source)
        if (target := without_other_target(config).run.target_return) is not None:
            found[task, label] = target
    return found


@contextlib.contextmanager
def _naming_setting(label: str) -> Iterator[None]:
    """Let the message of a ValueError begin with the label of a setting, '' of the only one."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"setting {label!r}: {error}" if label else str(error)) from error


def _find_config(
    setting: Setting, fields: Mapping[str, Any], source: pathlib.Path
) -> tuple[pathlib.Path, ExperimentConfig, Mapping[str, str]]:
    """Return the file of a setting's config, the config with new values, and the values' texts."""
    file = find_config(str(setting.config), folder=source)
    config = load_config_file(file)
    # An entry of a dict has no type of its own: only quotes tell the text '7' from the number.
    texts = {path: str(value) for path, value in fields.items()}
    for path, value in fields.items():
        if isinstance(value, str) and find_field(config, path) != path:
            texts[path] = repr(str(value))
    return file, change_fields(config, texts.items()), texts


def check_run(config: ExperimentConfig, num_parallel: int) -> str | None:
    """Return a warning if the replay exceeds the memory's share of one of several runs.

    Raises:
      ValueError: the run cannot learn.
    """
    experiment = make_experiment(config)
    replay_bytes = experiment.builder.estimate_replay_bytes(check_experiment(experiment))
    memory = available_memory() // num_parallel
    warning = memory_warning(experiment.data_flow(), replay_bytes, memory)
    share = f" (It is one of {num_parallel} at once.)" if num_parallel > 1 else ""
    return warning and f"{config.environment.task}: {warning}{share}"


def plan_runs(
    config: ExperimentConfig,
    setting: Mapping[str, Any],
    num_seeds: int,
    folder: pathlib.Path,
    command: Sequence[str],
) -> list[Run]:
    """Plan the runs of one setting on one task.

    Args:
      config: settings of the run with the first seed.
      setting: the label of the setting, or values of fields, by the names of their columns.
      num_seeds: number of runs; their seeds count up.
      folder: folder of the study.
      command: command that trains with these settings, but for seed and work directory.

    Returns:
      The runs, and behind them those with further seeds that the folder holds, unwanted.

    Raises:
      ValueError: the runs would never end, or a work directory holds a run of a different setting.
    """
    config = without_other_target(config)
    if all(get_field(config, limit) is None for limit in LIMITS):
        raise ValueError(f"the first run would never end: set one of {', '.join(LIMITS)}.")
    task = config.environment.task
    folder /= _to_file_name(task)
    if setting:
        folder /= ",".join(f"{name}={_to_file_name(str(value))}" for name, value in setting.items())
    trained = [path.name.removeprefix("seed_") for path in folder.glob("seed_*")]
    seeds = {*range(config.run.seed, config.run.seed + num_seeds)}
    runs = []
    for seed in [*sorted(seeds), *sorted({int(n) for n in trained if n.isdecimal()} - seeds)]:
        workdir = folder / f"seed_{seed}"
        argv = (*command, f"--config.run.seed={seed}", f"--workdir={workdir}")
        found = tuple(setting.items()), seed, workdir, argv, _is_finished(workdir, config)
        runs.append(Run(task, *found, seed in seeds))
    return runs


def check_same_setting(
    folder: pathlib.Path, before: Mapping[str, Any], config: ExperimentConfig, *fields: str
) -> None:
    """Raise a ValueError if runs of a config are not comparable with those that a folder holds.

    Args:
      folder: folder of the runs.
      before: `to_values` of their config.
      config: the new config.
      *fields: further fields that must not differ.
    """
    old, new = flatten(dict(before)), flatten(to_values(config))
    for field in (*_RUN_FIELDS, *fields):
        if field in old and old[field] != new[field]:
            raise ValueError(
                f"The folder {folder} holds a run with {field} {old[field]!r}, not "
                f"{new[field]!r}; name another --workdir."
            )


def _to_file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("_")


def _is_finished(workdir: pathlib.Path, config: ExperimentConfig) -> bool:
    """Return whether a run has ended where it would end with this config.

    Raises:
      ValueError: the folder holds a run of a different setting.
    """
    if not (workdir / CONFIG_FILE).exists():
        return False
    check_same_run(workdir, config)
    run = RunFolder(workdir)
    check_same_setting(workdir, run.config, config)
    before = flatten(run.config)
    now = {limit: get_field(config, limit) for limit in LIMITS}
    for limit, column in _COUNTED_LIMITS.items():
        if before.get(limit) != now[limit] is not None:
            counts = run.read_columns(columns.LEARNER).get(column, np.zeros(1))
            if (count := np.nanmax(counts)) > now[limit]:
                raise ValueError(
                    f"The folder {workdir} holds a run of {count:,.6g} {column}, more than {limit} "
                    f"{now[limit]:,}; name another --workdir."
                )
    has_ended = (run.summary() or {}).get("finished", False)
    target = now["run.target_return"]
    if has_ended and before.get("run.target_return") != target is not None:
        points = read_evaluations(run, "", "", 0)[:-1]
        if reached := [point for point in points if reaches(point.mean_return, target)]:
            raise ValueError(
                f"The folder {workdir} holds a run that went on after a return of "
                f"{reached[0].mean_return:,g}, with which run.target_return {target:,} is reached; "
                "name another --workdir."
            )
    return has_ended and all(before.get(limit) == now[limit] for limit in LIMITS)
