"""Finds the networks and optimizers that a new run takes over from another one."""

import os
import pathlib
from typing import Any

from apex_agents.environments import find_spec_difference, record_spec
from apex_agents.experiment import Experiment
from apex_agents.plotting.run_groups import flatten
from apex_agents.runs.checkpoints import (
    Checkpoint,
    copy_to_step_0,
    find_checkpoint,
    is_of,
    list_checkpoints,
)
from apex_agents.runs.config_file import AGENT_TYPE, read_spec, to_values
from apex_agents.runs.files import read_json, write_json
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import CHECKPOINTS

_SOURCE_FILE = ".initial_run"  # Beside the checkpoints: the folder of the other run.


def find_initial(experiment: Experiment, initial_run: str | pathlib.Path) -> Checkpoint | None:
    """Find the checkpoint with which the learner of an experiment starts.

    Args:
      experiment: experiment with a config and a folder.
      initial_run: folder of the other run.

    Returns:
      Its newest checkpoint; None if the experiment's run resumes, and has started with that run.

    Raises:
      ValueError: there is no such run or checkpoint, it is of other networks, optimizers or specs,
        or the experiment's run has started without it.
    """
    folder = pathlib.Path(os.path.expanduser(experiment.workdir))
    if list_checkpoints(folder / CHECKPOINTS):
        source = _find_source(folder)
        if source is not None and source != _resolve(initial_run):
            raise ValueError(
                f"initial_run: the run in {folder} has begun with {source or 'new networks'} and "
                "resumes from its own checkpoint; leave initial_run out, or name another folder."
            )
        return None
    run = RunFolder(initial_run)
    checkpoint = find_checkpoint(run.path / CHECKPOINTS)
    if checkpoint is None:
        raise ValueError(f"initial_run: {run.path} has no checkpoint of a learner; name a run.")
    spec = experiment.environment_spec()
    difference = find_spec_difference(read_spec(run.path), record_spec(spec))
    if difference is not None:
        name, old, new = difference
        raise ValueError(
            f"initial_run: the {name} of the run in {run.path} are {old}; those of "
            f"{experiment.task} are {new}, for which its networks are not made."
        )
    builder: Any = experiment.builder
    if not hasattr(builder, "make_update"):
        kind = type(builder).__name__
        raise ValueError(f"initial_run: {kind} has no make_update, which tells what is learned.")
    if not is_of(checkpoint, builder.make_update(spec).state):
        raise ValueError(
            f"initial_run: the run in {run.path} has other networks or optimizers; its settings "
            f"differ in {', '.join(_list_differences(run, experiment.config))}."
        )
    return checkpoint


def start_with(checkpoint: Checkpoint | None, workdir: pathlib.Path) -> None:
    """Record with which other run a run starts, None for none, and copy its checkpoint.

    Of a run that resumes nothing is changed.

    Raises:
      ValueError: it cannot be copied, or has been removed meanwhile.
    """
    if list_checkpoints(workdir / CHECKPOINTS):
        return
    source = "" if checkpoint is None else _resolve(checkpoint.path.parents[1])
    if not write_json(workdir / _SOURCE_FILE, source):
        raise ValueError(f"{workdir / _SOURCE_FILE} cannot be written.")
    if checkpoint is not None:
        copy_to_step_0(checkpoint, workdir / CHECKPOINTS)


def _find_source(workdir: pathlib.Path) -> str | None:
    """Return the folder of the run with which another one has started, '' if with none.

    None if it is not known: earlier versions did not record it.
    """
    return read_json(workdir / _SOURCE_FILE)


def _resolve(path: str | pathlib.Path) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _list_differences(run: RunFolder, config: Any) -> list[str]:
    """Return the paths of the fields of the agent that differ from those of a run."""
    before, now = flatten(run.config), flatten(to_values(config))
    if before.get(AGENT_TYPE) != now[AGENT_TYPE]:
        return [AGENT_TYPE]
    paths = sorted(path for path in before | now if path.startswith("agent."))
    return [path for path in paths if before.get(path) != now.get(path)] or ["what a builder makes"]
