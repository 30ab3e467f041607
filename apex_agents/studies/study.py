"""A study, which compares settings with several seeds on several tasks, and its runs.

A figure of the paper is a study in a file, and a grid of values on the command line is one, too.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.config import ExperimentConfig, without_other_target
from apex_agents.metrics import columns
from apex_agents.plotting.run_groups import LIMITS, TASK, flatten
from apex_agents.runs.config_file import CONFIG_FILE, check_same_run, to_values
from apex_agents.runs.folder import RunFolder
from apex_agents.validation import get_field, require

# How far a run got, and the time it took: horizontal axes of figures.
PROGRESS = (columns.ACTOR_STEPS, columns.LEARNER_STEPS, columns.WALL_TIME_SECONDS)
# The column of a setting that has a label, and not the values of some fields.
LABEL = "setting"
# Fields that may change when a run is resumed, but make a different setting of a study.
_RUN_FIELDS = (
    "run.num_actors",
    "run.num_envs_per_actor",
    "run.evaluation.num_episodes",
    "environment.max_episode_steps",
)
# Limits that the run in a folder may already exceed, and the columns that count them.
_COUNTED_LIMITS = {
    "run.max_actor_steps": columns.ACTOR_STEPS,
    "run.max_learner_steps": columns.LEARNER_STEPS,
}


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
    """Settings that are compared, by `apex-study FILE` if the file's `get_study` returns it.

    Attributes:
      title: what is compared.
      settings: settings by the labels of their curves; the scores of others are compared with those
        of the first one.
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


class Run(NamedTuple):
    """One run of a study.

    Attributes:
      task: name of the task.
      setting: the setting: a label, or values of fields, with the names of their columns.
      seed: seed of the run.
      folder: work directory of the run.
      argv: command that starts the run, or resumes it.
      is_finished: whether the run has reached its end before the study starts.
      is_wanted: whether the run is to be trained, not only shown.
    """

    task: str
    setting: tuple[tuple[str, Any], ...]
    seed: int
    folder: pathlib.Path
    argv: Sequence[str]
    is_finished: bool = False
    is_wanted: bool = True

    @property
    def label(self) -> str:
        """The setting as figures name it."""
        return ", ".join(
            str(value) if name == LABEL else f"{name}={show_field(value)}"
            for name, value in self.setting
        )

    @property
    def name(self) -> str:
        """The run as messages name it."""
        return ", ".join(filter(None, [self.task, self.label, f"seed {self.seed}"]))

    @property
    def log(self) -> pathlib.Path:
        """The file that the output of the run is appended to."""
        return self.folder / "output.log"

    def open_folder(self) -> RunFolder | None:
        """Return the folder for reading; None before the run has written its config."""
        try:
            return RunFolder(self.folder)
        except ValueError:
            return None


def show_field(value: Any) -> str:
    """Format the value of a field, a number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plan_runs(
    config: ExperimentConfig,
    setting: Mapping[str, str],
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
        folder /= ",".join(f"{name}={_to_file_name(text)}" for name, text in setting.items())
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
      ValueError: the folder holds a run whose results are not those of the config.
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
                    f"The folder {workdir} holds a run of {count:,.0f} {column}, more than {limit} "
                    f"{now[limit]:,}; name another --workdir."
                )
    has_ended = (run.summary() or {}).get("finished", False)
    return has_ended and all(before.get(limit) == now[limit] for limit in LIMITS)
