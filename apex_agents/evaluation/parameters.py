"""Finds the parameters that a run has saved, and loads them into networks."""

import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from apex_agents.runs.checkpoints import PARAMETERS, list_checkpoints
from apex_agents.runs.parameter_file import by_variable_name, load_parameters, read_steps
from apex_agents.runs.workdir import BEST_CHECKPOINT, CHECKPOINTS, LAST_CHECKPOINT

BEST, LAST = "best", "last"

_MAX_SHOWN = 6  # Parameters that do not fit, in a message.


class SavedParameters(NamedTuple):
    """What a file of parameters holds, which a run that is training may replace."""

    path: pathlib.Path  # Path of a learner checkpoint or an `.npz` file.
    arrays: dict[str, np.ndarray]  # Arrays by the names of their variables.
    learner_steps: int  # Learner steps that led to them.


def find_parameters(workdir: pathlib.Path, checkpoint: str) -> pathlib.Path:
    """Find saved parameters by the name that a user gives them.

    Args:
      workdir: folder of the run.
      checkpoint: 'best' for the parameters of the best evaluation, 'last' for those of most
        learner steps, the name of a learner checkpoint ('learner-1234' is enough), or the path of a
        learner checkpoint or an `.npz` file.

    Returns:
      Path of a learner checkpoint or an `.npz` file.

    Raises:
      ValueError: there are no such parameters; the message lists those that exist.
    """
    files = [workdir / BEST_CHECKPOINT, workdir / LAST_CHECKPOINT]
    checkpoints = list_checkpoints(workdir / CHECKPOINTS)
    paths = {path.stem: path for path in [*files, *checkpoints] if path.exists()}
    others = [path for name, path in paths.items() if name != BEST]
    if checkpoint == LAST and others:
        return max(others, key=_age_of)
    number = re.fullmatch(r"learner-(\d{1,12})", checkpoint)
    name = f"learner-{int(number[1]):012d}" if number else checkpoint
    if name in paths:
        return paths[name]
    if "/" in checkpoint or checkpoint.endswith(".npz"):
        path = pathlib.Path(checkpoint)
        if path.exists():
            return path
        raise ValueError(f"checkpoint={checkpoint}: there is no such file or folder.")
    if not paths:
        raise ValueError(
            f"{workdir} has no parameters yet: {BEST_CHECKPOINT} comes with the first "
            f"evaluation, {CHECKPOINTS}/learner-* after run.checkpoint_period_seconds."
        )
    raise ValueError(f"checkpoint={checkpoint} does not exist; there are {', '.join(paths)}.")


def _age_of(path: pathlib.Path) -> tuple[int, float]:
    """Return learner steps and the time of writing, which a copy may not have kept."""
    try:
        learner_steps = int(path.name.rpartition("-")[2]) if path.is_dir() else read_steps(path)
        return learner_steps, path.stat().st_mtime
    except (OSError, ValueError):  # The learner has removed it meanwhile, or it is damaged.
        return 0, 0.0


def load_into(variables: Mapping[str, Sequence[tf.Variable]], path: pathlib.Path) -> int:
    """Read parameters and assign them to variables: see `read_parameters` and `assign`.

    Returns:
      Learner steps that led to these parameters.
    """
    parameters = read_parameters(path)
    assign(variables, parameters)
    return parameters.learner_steps


def is_of_run(path: pathlib.Path, workdir: pathlib.Path) -> bool:
    """Return whether parameters are in the folder of a run, which may be loaded with others."""
    return workdir.resolve() in path.resolve().parents


def read_parameters(path: pathlib.Path) -> SavedParameters:
    """Read saved parameters.

    Args:
      path: parameters, as `find_parameters` returns them.

    Raises:
      ValueError: the file cannot be read.
    """
    try:
        return SavedParameters(path, *load_parameters(path / PARAMETERS if path.is_dir() else path))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def assign(variables: Mapping[str, Sequence[tf.Variable]], parameters: SavedParameters) -> None:
    """Assign saved parameters to variables, by name.

    Args:
      variables: variables of a policy, in its groups.
      parameters: parameters of the same networks.

    Raises:
      ValueError: the arrays are those of different networks; then nothing is assigned.
    """
    named = by_variable_name(variables, variables)
    misfits = list(_misfits(named, parameters.arrays))
    if misfits:
        more = [f"{len(misfits) - _MAX_SHOWN} more"] if len(misfits) > _MAX_SHOWN else []
        described = "; ".join(misfits[:_MAX_SHOWN] + more)
        raise ValueError(f"{parameters.path} does not fit the networks of the run: {described}.")
    for name, variable in named.items():
        # Arrays of an agent written with `--float16` are float16.
        variable.assign(parameters.arrays[name].astype(variable.dtype.as_numpy_dtype))


def _misfits(
    variables: Mapping[str, tf.Variable], arrays: Mapping[str, np.ndarray]
) -> Iterator[str]:
    for name, variable in variables.items():
        shape = tuple(variable.shape)
        if name not in arrays:
            yield f"{name} {shape} is missing"
        elif arrays[name].shape != shape:
            yield f"{name} is {arrays[name].shape}, not {shape}"
    for name in sorted(arrays.keys() - variables.keys()):
        yield f"{name} {arrays[name].shape} is unexpected"
