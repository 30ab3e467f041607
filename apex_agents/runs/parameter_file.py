"""The parameters of a policy in an `.npz` file, with the learner step at which they were copied."""

import contextlib
import io
import pathlib
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from apex_agents.runs.files import replace_file, try_to_write

PARAMETERS = "parameters.npz"  # The file in the folder of a learner checkpoint.

_LEARNER_STEPS = "learner_steps"
_NUM_UPDATES = "num_updates"  # A group of variables, of updates and of policies.

_MAX_SHOWN = 6  # Parameters that do not fit, in a message.

_Value = TypeVar("_Value")


class SavedParameters(NamedTuple):
    """What a file of parameters holds, which a run that is training may replace."""

    path: pathlib.Path  # Path of a learner checkpoint or an `.npz` file.
    arrays: dict[str, np.ndarray]  # Arrays by the names of their variables.
    learner_steps: int  # Learner steps that led to them.


def by_variable_name(
    variables: Mapping[str, Sequence[tf.Variable]], values: Mapping[str, Sequence[_Value]]
) -> dict[str, _Value]:
    """Return values by the names of their variables, such as `torso/conv_1/w`.

    A name that several groups have begins with the group's name. Of equal names within a group, as
    layers have that were not given any, the later ones are numbered: `linear_1/w`, `linear_2/w`.
    Equal networks get equal names. The group `num_updates` is published with the parameters, but is
    none of them.

    Args:
      variables: variables in groups, as a policy and an update have them.
      values: one value for each variable, in the same groups.
    """
    groups = {
        group: [_own_name(variable) for variable in members]
        for group, members in variables.items()
        if group != _NUM_UPDATES
    }
    num_groups = Counter(name for names in groups.values() for name in set(names))
    named: dict[str, _Value] = {}
    for group, names in groups.items():
        for name, value in zip(names, values[group], strict=True):
            full_name = name if num_groups[name] == 1 else f"{group}/{name}"
            named[_number(full_name, {*named, _LEARNER_STEPS})] = value
    return named


def _own_name(variable: tf.Variable) -> str:
    return variable.name.removesuffix(":0")


def _number(name: str, taken: set[str]) -> str:
    """Return a name, its layer numbered if it is taken."""
    layer, slash, last = name.rpartition("/")
    number = 0
    while name in taken:
        number += 1
        name = f"{layer}_{number}/{last}" if slash else f"{last}_{number}"
    return name


def save_parameters(
    path: pathlib.Path, parameters: Mapping[str, np.ndarray], learner_steps: int
) -> bool:
    """Write parameters atomically, report failures, and return whether they were written.

    Args:
      path: path of the file.
      parameters: arrays by the names of their variables, see `by_variable_name`.
      learner_steps: learner steps that led to them.
    """
    content = encode_parameters(parameters, learner_steps)
    return try_to_write(path, lambda: replace_file(path, content))


def encode_parameters(parameters: Mapping[str, np.ndarray], learner_steps: int) -> memoryview:
    """Return the content of the file that `save_parameters` writes."""
    content = io.BytesIO()  # Closing a zip file on a full disk would raise other errors, too.
    np.savez(content, **parameters, **{_LEARNER_STEPS: np.asarray(learner_steps)})
    return content.getbuffer()


def read_parameters(path: pathlib.Path) -> SavedParameters:
    """Read saved parameters; nothing in the file is executed.

    Args:
      path: path of a learner checkpoint or an `.npz` file.

    Raises:
      ValueError: the file cannot be read, is corrupted, or is none that `save_parameters` wrote.
    """
    with _reading(path) as file:
        arrays = dict(file)
        return SavedParameters(path, arrays, int(arrays.pop(_LEARNER_STEPS)))


def read_steps(path: pathlib.Path) -> int:
    """Return the learner steps of parameters; raises as `read_parameters` does."""
    with _reading(path) as file:
        return int(file[_LEARNER_STEPS])


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[Mapping[str, np.ndarray]]:
    try:
        with np.load(path / PARAMETERS if path.is_dir() else path, allow_pickle=False) as file:
            yield file
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def assign(variables: Mapping[str, Sequence[tf.Variable]], parameters: SavedParameters) -> None:
    """Assign saved parameters to variables, by name, and their learner steps to `num_updates`.

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
    for variable in variables.get(_NUM_UPDATES, ()):
        variable.assign(parameters.learner_steps)


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
