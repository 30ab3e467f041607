"""Which runs are seeds of the same setting, and what to call those that are not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from apex_agents.runs.config_file import AGENT_TYPE
from apex_agents.runs.folder import RunFolder

# What may differ between seeds: the seed, and where a run ends.
LIMITS = ("run.max_learner_steps", "run.max_actor_steps", "run.target_return")
# The agent's type can be told from its fields; runs of earlier versions do not name it.
_FREE_FIELDS = ("run.seed", *LIMITS, AGENT_TYPE)
_TASK = "environment.task"

# A label with more fields than this would not be read.
_MAX_FIELDS_OF_LABEL = 3
# Of one CSV file: half a day of the learner's rows. Of a longer one, pieces from all over it.
_MAX_BYTES = 2 * 2**20

Columns = dict[str, np.ndarray]


class RunGroup:
    """Runs that differ in nothing but their seed and where they end.

    Attributes:
      runs: at least one.
      label: what sets them apart from other groups.
    """

    def __init__(self, runs: Sequence[RunFolder], label: str):
        """Take runs together."""
        self.runs = list(runs)
        self.label = label
        self._fields = [flatten(run.config) for run in self.runs]
        self._columns: dict[str, list[Columns]] = {}

    @property
    def agent(self) -> str:
        """The agent's name."""
        return "Ape-X DPG" if "agent.noise_scale" in self._fields[0] else "Ape-X DQN"

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.field(_TASK) or "?")

    def field(self, path: str) -> Any:
        """Return a field of the config; None if the runs differ in it or do not have it."""
        values = [fields.get(path) for fields in self._fields]
        return values[0] if all(value == values[0] for value in values) else None

    def describe(self, num_runs: int) -> str:
        """Return the label and, if there are several, the number of the runs that are shown."""
        return f"{self.label} ({num_runs} seeds)" if num_runs > 1 else self.label

    def logs(self) -> list[str]:
        """Return the names of the CSV files of all runs."""
        return sorted({name for run in self.runs for name in run.logs()})

    def read_columns(self, name: str, max_bytes: int = _MAX_BYTES) -> list[Columns]:
        """Read `logs/<name>.csv` of every run once; see `RunFolder.read_columns`."""
        if name not in self._columns:
            self._columns[name] = [run.read_columns(name, max_bytes) for run in self.runs]
        return self._columns[name]


def group_runs(runs: Sequence[RunFolder]) -> list[RunGroup]:
    """Find the runs that are seeds of the same setting.

    Args:
      runs: at least one.

    Returns:
      Groups in the order of their first runs. They are called by their tasks, those of one task by
      the fields in which they differ, and by the folder of their first run if these are many.
    """
    members: dict[tuple, list[RunFolder]] = {}
    for run in runs:
        fields = {k: v for k, v in flatten(run.config).items() if k not in _FREE_FIELDS}
        members.setdefault(tuple(sorted(fields.items(), key=str)), []).append(run)
    settings = [dict(setting) for setting in members]
    return [
        RunGroup(group, _label(setting, settings, group[0]))
        for setting, group in zip(settings, members.values(), strict=True)
    ]


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of nested dicts by their dotted paths; lists become tuples."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= flatten(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = tuple(value) if isinstance(value, list) else value
    return fields


def _label(
    setting: dict[str, Any], settings: Sequence[dict[str, Any]], first_run: RunFolder
) -> str:
    """Say in a few words what sets one setting apart from the others."""
    task = str(setting.get(_TASK, "?"))
    rivals = [other for other in settings if other.get(_TASK) == setting.get(_TASK)]
    others_have_other_tasks = len(rivals) < len(settings)
    names = list(dict.fromkeys(name for rival in rivals for name in rival))
    differing = [n for n in names if any(r.get(n) != setting.get(n) for r in rivals)]
    if not differing:
        return task
    if len(differing) > _MAX_FIELDS_OF_LABEL:
        return str(first_run.path.name)
    short_names = [name.rpartition(".")[2] for name in differing]
    fields = ", ".join(
        f"{short if short_names.count(short) == 1 else name}={setting.get(name)}"
        for short, name in zip(short_names, differing, strict=True)
    )
    return f"{task}, {fields}" if others_have_other_tasks else fields
