"""Groups runs that differ only in their seeds, with the label and the colour of each group."""

import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from apex_agents.json_values import decode
from apex_agents.plotting.curves import describe_mean
from apex_agents.runs.config_file import AGENT_TYPE, agent_name, with_defaults
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.setting_labels import find_setting

# Fields in which the seeds of a setting may differ, beside the seed: limits of the run.
LIMITS = tuple(
    f"run.{name}"
    for name in ("max_learner_steps", "max_actor_steps", "max_seconds", "target_return")
)
FREE_FIELDS = ("run.seed", *LIMITS)
TASK = "environment.task"

_MAX_FIELDS_OF_LABEL = 3
# Read per CSV file: half a day of the learner's rows. Longer files are read in pieces.
_MAX_BYTES = 2 * 2**20

Columns = dict[str, np.ndarray]


class RunGroup:
    """Runs that differ only in their seeds and limits; files are read when they are needed.

    Attributes:
      runs: at least one run.
      setting: label of the setting, the same on all tasks; '' for the only one of its task.
      index: place of the setting in the order of colours.
    """

    def __init__(self, runs: Sequence[RunFolder], setting: str, index: int):
        self.runs = list(runs)
        self.setting = setting
        self.index = index
        self._fields = [flatten(run.config) for run in self.runs]
        self._columns: dict[str, list[Columns]] = {}

    @property
    def agent(self) -> str:
        """Name of the agent, 'Ape-X DQN' for an `ApexDQNConfig`, 'A2C' for an `A2CConfig`."""
        names = {fields[AGENT_TYPE] for fields in self._fields if AGENT_TYPE in fields}
        return agent_name(names.pop() if len(names) == 1 else None)  # Saved runs lack it.

    @property
    def task(self) -> str:
        return str(self.field(TASK) or "?")

    def field(self, path: str) -> Any:
        """Return a field of the config; None if the runs differ in it or lack it."""
        values = [fields.get(path) for fields in self._fields]
        return values[0] if all(value == values[0] for value in values) else None

    def logs(self) -> list[str]:
        """Return the names of all CSV files of the runs."""
        return sorted({name for run in self.runs for name in run.logs()})

    def read_columns(self, name: str, max_bytes: int = _MAX_BYTES) -> list[Columns]:
        """Return `RunFolder.read_columns` of every run; each file is read once."""
        if name not in self._columns:
            self._columns[name] = [run.read_columns(name, max_bytes) for run in self.runs]
        return self._columns[name]


def group_runs(runs: Sequence[RunFolder]) -> list[RunGroup]:
    """Group the runs that are seeds of the same setting, in the order of their first runs.

    Labels, colours and order are those that a study has recorded, if all runs belong to one study.
    Otherwise a label names the agent, if the task has several, and the fields in which settings
    differ; if these are many, the folder of the runs. Colours then follow the order of the runs.
    """
    members: dict[str, list[RunFolder]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        values = sorted(flatten(with_defaults(run.config)).items())
        fields = {name: value for name, value in values if name not in FREE_FIELDS}
        # A config from Python may have 8, and one from a command line 8.0.
        key = json.dumps({n: float(v) if type(v) is int else v for n, v in fields.items()})
        settings.setdefault(key, fields)
        members.setdefault(key, []).append(run)
    paths = {key: group[0].path for key, group in members.items()}
    labels = _recorded_labels(settings, paths)
    if not labels:
        found = {key: _label(key, settings, paths) for key in members}
        order = list(dict.fromkeys(found.values()))
        labels = {key: (label, order.index(label)) for key, label in found.items()}
    return [RunGroup(members[key], *label) for key, label in labels.items()]


def _recorded_labels(
    settings: Mapping[str, dict[str, Any]], paths: Mapping[str, pathlib.Path]
) -> dict[str, tuple[str, int]]:
    """Return label and index of each group; none unless a single study recorded them."""
    found = {key: setting for key, path in paths.items() if (setting := find_setting(path))}
    folders = {setting.folder for setting in found.values()}
    different = {(settings[key].get(TASK), setting.label) for key, setting in found.items()}
    if len(folders) != 1 or len(different) < len(paths):
        return {}
    ordered = sorted(found, key=lambda key: found[key].place)
    return {key: (found[key].label, found[key].place) for key in ordered}


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of nested dicts by their dotted paths; lists become tuples."""
    fields: dict[str, Any] = {}
    for name, value in decode(config).items():
        if isinstance(value, dict):
            fields |= flatten(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = tuple(value) if isinstance(value, list) else value
    return fields


def _label(
    key: str, settings: Mapping[str, dict[str, Any]], paths: Mapping[str, pathlib.Path]
) -> str:
    """Return the label of a setting that distinguishes it on its task, '' if it is the only one.

    Args:
      key: key of the group.
      settings: fields of all groups.
      paths: folders of their first runs.
    """
    setting = settings[key]
    keys = [k for k, other in settings.items() if other.get(TASK) == setting.get(TASK)]
    rivals = [settings[k] for k in keys]
    of_agent = [other for other in rivals if other.get(AGENT_TYPE) == setting.get(AGENT_TYPE)]
    names = list(dict.fromkeys(name for other in of_agent for name in other))
    differing = [n for n in names if any(o.get(n) != setting.get(n) for o in of_agent)]
    if len(differing) > _MAX_FIELDS_OF_LABEL:
        folders = {k: _folder_of_seeds(paths[k]) for k in keys}
        if len(set(folders.values())) < len(keys):
            folders = {k: paths[k] for k in keys}
        root = os.path.commonpath([folder.parent for folder in folders.values()])
        return folders[key].relative_to(root).as_posix()
    agent = [agent_name(setting.get(AGENT_TYPE))] if len(of_agent) < len(rivals) else []
    shortened = zip(shorten(differing), differing, strict=True)
    return ", ".join([*agent, *(f"{short}={setting.get(name)}" for short, name in shortened)])


def _folder_of_seeds(run: pathlib.Path) -> pathlib.Path:
    """Return the folder that a study gives to the seeds of a setting, or else the run's folder."""
    return run.parent if re.fullmatch(r"seed_\d+", run.name) else run


def make_title(groups: Sequence[RunGroup]) -> str:
    """Return agents, task and setting of a figure, and the seeds if it shows a single group."""
    title = " and ".join(sorted({group.agent for group in groups}))
    if len({group.task for group in groups}) == 1:
        title += f" on {groups[0].task}"
    if groups[0].setting and len({group.setting for group in groups}) == 1:
        title += f", {groups[0].setting}"
    if len(groups) == 1:
        count = len(groups[0].runs)
        title += f", {count} seeds" if count > 1 else f", seed {groups[0].field('run.seed')}"
    return title


def name_in(group: RunGroup, groups: Sequence[RunGroup]) -> str:
    """Return the name of a group that distinguishes it in its panel, '' if it is the only one."""
    if len(groups) == 1:
        return ""
    is_one_task = len({other.task for other in groups}) == 1  # The title names the task then.
    return ", ".join(filter(None, [group.task * (not is_one_task), group.setting]))


def describe_line(group: RunGroup, groups: Sequence[RunGroup], num_runs: int, point: str) -> str:
    """Return the legend text of a group's line.

    Args:
      group: the group.
      groups: all groups in its panel.
      num_runs: number of its runs that are drawn.
      point: meaning of a point of the line, if it shows the only run of the panel.
    """
    name = name_in(group, groups)
    mean = describe_mean(num_runs) if num_runs > 1 else point * (not name)
    return f"{name} ({mean})" if name and mean else name or mean


def place_in(group: RunGroup, groups: Sequence[RunGroup]) -> tuple[int, int]:
    """Return colour and variant of a group's lines in a panel, as `style.line_style` takes them.

    Colours tell settings apart, and variants tasks; of a single setting, colours tell tasks apart.
    """
    tasks = list(dict.fromkeys(other.task for other in groups))
    place = tasks.index(group.task)
    is_one_setting = len({other.index for other in groups}) == 1
    return (group.index + place, 0) if is_one_setting else (group.index, place)


def shorten(paths: Sequence[str]) -> list[str]:
    """Return the last part of each dotted path, or the path where two have the same last part."""
    last_parts = [path.rpartition(".")[2] for path in paths]
    return [
        last if last_parts.count(last) == 1 else path
        for last, path in zip(last_parts, paths, strict=True)
    ]
