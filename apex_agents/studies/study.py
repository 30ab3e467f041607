"""A study, which compares settings with several seeds on several tasks, and its runs.

A figure of the paper is a study in a file, and a grid of values on the command line is one, too.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apex_agents.metrics import columns
from apex_agents.plotting.run_groups import TASK
from apex_agents.runs.folder import RunFolder
from apex_agents.validation import require

# How far a run got, and the time it took: horizontal axes of figures.
PROGRESS = (columns.ACTOR_STEPS, columns.LEARNER_STEPS, columns.WALL_TIME_SECONDS)
# The column of a setting that has a label, and not the values of some fields.
LABEL = "setting"
# Values of settings by their columns in tables, by the labels of the settings; a setting without
# an entry has one column with its label.
Cells = Mapping[str, Mapping[str, Any]]
# Target returns of runs that have one, by their tasks and the labels of their settings.
Targets = Mapping[tuple[str, str], float]


class Setting(NamedTuple):
    """Settings of the runs of one curve.

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
      title: title of the figure.
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
        # Matplotlib's legends leave out what begins with '_'.
        isinstance(label, str) and label.isprintable() and not label.startswith("_")
        for label in settings
    )
    allowed = "a dict of labels, which do not begin with '_', to Settings"
    require(bool(settings) and is_dict, "settings", settings, allowed)
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

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` holds; nothing before there is one."""
        folder = self.open_folder()
        return (folder.summary() if folder else None) or {}

    def open_folder(self) -> RunFolder | None:
        """Return the folder for reading; None before the run has written its config."""
        try:
            return RunFolder(self.folder)
        except ValueError:
            return None


def show_field(value: Any) -> str:
    """Format the value of a field, a number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
