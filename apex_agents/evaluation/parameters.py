"""The parameters that a run has left behind: which there are, and how a policy gets them."""

import pathlib
import re
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from apex_agents.acting.policy import Policy
from apex_agents.runs.checkpoints import (
    list_checkpoints,
    open_checkpoint,
    restore_checkpoint,
)
from apex_agents.runs.parameter_file import load_parameters
from apex_agents.runs.workdir import BEST_CHECKPOINT, CHECKPOINTS, LAST_CHECKPOINT

BEST, LAST = "best", "last"


def find_parameters(workdir: pathlib.Path, checkpoint: str) -> pathlib.Path:
    """Find parameters by what a person calls them.

    Args:
      workdir: the run's folder.
      checkpoint: 'best', those of the best evaluation; 'last', the newest, of a run that goes on
        those of its newest checkpoint; the name of one ('learner-1234' will do); or the path of a
        checkpoint or of an `.npz` file.

    Returns:
      The path of a checkpoint of the learner or of an `.npz` file.

    Raises:
      ValueError: there are no such parameters; says which there are.
    """
    paths = _list_parameters(workdir)
    newest = max((path for name, path in paths.items() if name != BEST), key=_age, default=None)
    if checkpoint == LAST and newest is not None:
        return newest
    number = re.fullmatch(r"learner-(\d{1,12})", checkpoint)
    name = f"learner-{int(number[1]):012d}" if number else checkpoint
    if name in paths:
        return paths[name]
    if "/" in checkpoint or checkpoint.endswith(".npz"):
        path = pathlib.Path(checkpoint)
        if path.exists():
            return path
        raise ValueError(f"--checkpoint={checkpoint}: there is no such file or folder.")
    if not paths:
        raise ValueError(
            f"--workdir={workdir} has no parameters yet: {BEST_CHECKPOINT} comes with the first "
            f"evaluation, {CHECKPOINTS}/learner-* after run.checkpoint_period_seconds."
        )
    raise ValueError(f"--checkpoint={checkpoint} is not there; there are {', '.join(paths)}.")


def _list_parameters(workdir: pathlib.Path) -> dict[str, pathlib.Path]:
    """List what is there by name."""
    files = [workdir / BEST_CHECKPOINT, workdir / LAST_CHECKPOINT]
    checkpoints = list_checkpoints(workdir / CHECKPOINTS)
    return {path.stem: path for path in [*files, *checkpoints] if path.exists()}


def _age(path: pathlib.Path) -> float:
    return path.stat().st_mtime


def load_into(policy: Policy, path: pathlib.Path) -> int | None:
    """Give a policy the values of its variables.

    Args:
      policy: whose variables exist.
      path: as `find_parameters` returns it.

    Returns:
      The learner steps that led to them; None if the file does not tell.

    Raises:
      ValueError: the values cannot be read, or are those of other networks.
    """
    try:
        checkpoint = open_checkpoint(path) if path.is_dir() else None
        arrays, learner_steps = ({}, None) if checkpoint else load_parameters(path)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {_first_line(error)}") from error
    try:
        if checkpoint is None:
            _assign(policy, arrays)
            return learner_steps
        restore_checkpoint(checkpoint, policy.networks)
        return checkpoint.progress.learner_steps
    except (AssertionError, ValueError) as error:
        reason = _first_line(error)
        raise ValueError(f"{path} does not fit the networks of the run: {reason}") from error


def _assign(policy: Policy, arrays: Mapping[str, Sequence[np.ndarray]]) -> None:
    if set(arrays) != set(policy.variables):
        raise ValueError(f"it has {sorted(arrays)}, not {sorted(policy.variables)}")
    for name, variables in policy.variables.items():
        shapes = [tuple(variable.shape) for variable in variables]
        if shapes != [array.shape for array in arrays[name]]:
            raise ValueError(f"the shapes of {name!r} differ")
        for variable, array in zip(variables, arrays[name], strict=True):
            variable.assign(array)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
