"""Which runs a sweep consists of, and which of them have reached their end already."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.config import ExperimentConfig, without_other_target
from apex_agents.metrics import columns
from apex_agents.plotting.run_groups import LIMITS, flatten
from apex_agents.runs.config_file import CONFIG_FILE, check_same_run, to_values
from apex_agents.runs.folder import RunFolder

# Limits that a run may be beyond, and the columns that count.
_COUNTED_LIMITS = {
    "run.max_actor_steps": columns.ACTOR_STEPS,
    "run.max_learner_steps": columns.LEARNER_STEPS,
}
# Fields that may change when a run is resumed, but make another setting of a sweep.
RUN_FIELDS = (
    "run.num_actors",
    "run.num_envs_per_actor",
    "run.evaluation.num_episodes",
    "environment.max_episode_steps",
)


class Run(NamedTuple):
    """One run of a sweep.

    Attributes:
      task: name of the task.
      setting: names and values of the other fields in which runs of the sweep differ, as texts.
      seed: seed of the run.
      folder: work directory of the run.
      argv: command that starts the run, or resumes it.
      is_finished: whether the run has reached its end before the sweep starts.
    """

    task: str
    setting: tuple[tuple[str, str], ...]
    seed: int
    folder: pathlib.Path
    argv: Sequence[str]
    is_finished: bool = False

    @property
    def label(self) -> str:
        """The setting as figures name it."""
        return ", ".join(f"{name}={value}" for name, value in self.setting)

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

    def read_end_reason(self) -> str:
        """Return why the run says that it has ended."""
        folder = self.open_folder()
        summary = folder.summary() if folder else None
        return str((summary or {}).get("reason", "it does not say why"))


def plan_runs(
    config: ExperimentConfig,
    setting: Mapping[str, Any],
    num_seeds: int,
    folder: pathlib.Path,
    command: Sequence[str],
) -> list[Run]:
    """Plan the runs of one setting.

    Args:
      config: settings of the run with the first seed.
      setting: names and values of the fields, the task excluded, in which the settings differ.
      num_seeds: number of runs; their seeds count up.
      folder: folder of the sweep.
      command: command that trains with these settings, but for seed and work directory.

    Raises:
      ValueError: the runs would never end, or a work directory holds a run of another setting.
    """
    config = without_other_target(config)
    fields = flatten(dataclasses.asdict(config))
    if all(fields.get(limit) is None for limit in LIMITS):
        raise ValueError(f"the first run would never end: set one of {', '.join(LIMITS)}.")
    task = config.environment.task
    folder /= _to_file_name(task)
    texts = tuple((name, str(value)) for name, value in setting.items())
    if texts:
        folder /= ",".join(f"{name}={_to_file_name(text)}" for name, text in texts)
    runs = []
    for seed in range(config.run.seed, config.run.seed + num_seeds):
        workdir = folder / f"seed_{seed}"
        argv = (*command, f"--config.run.seed={seed}", f"--workdir={workdir}")
        runs.append(Run(task, texts, seed, workdir, argv, _is_finished(workdir, config)))
    return runs


def check_folders(runs: Iterable[Run]) -> None:
    """Raise a ValueError if two runs would have the same work directory."""
    names: dict[pathlib.Path, str] = {}
    for run in runs:
        other = names.setdefault(run.folder, run.name)
        if other != run.name:
            raise ValueError(
                f"{other} and {run.name} would share the folder {run.folder}, in whose name all "
                "but letters, digits, '.', '-' and '_' is left out; name them so that they differ."
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
    before, now = flatten(run.config), flatten(to_values(config))
    for field in RUN_FIELDS:
        if field in before and before[field] != now[field]:
            raise ValueError(
                f"The folder {workdir} holds a run with {field} {before[field]!r}, not "
                f"{now[field]!r}; name another --workdir."
            )
    for limit, column in _COUNTED_LIMITS.items():
        if before.get(limit) != now[limit] is not None:
            counts = run.read_columns(columns.LEARNER).get(column, np.zeros(1))
            if (count := np.nanmax(counts)) > now[limit]:
                raise ValueError(
                    f"The folder {workdir} holds a run of {count:,.0f} {column}, more than {limit} "
                    f"{now[limit]:,}; name another --workdir."
                )
    has_ended = (run.summary() or {}).get("finished", False)
    return has_ended and all(before.get(limit) == now.get(limit) for limit in LIMITS)
