"""The parameters of a policy in an `.npz` file, with the learner step at which they were copied."""

import contextlib
import io
import pathlib
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf

from apex_agents.runs.files import replace_file, try_to_write

_LEARNER_STEPS = "learner_steps"

_Value = TypeVar("_Value")


def by_variable_name(
    variables: Mapping[str, Sequence[tf.Variable]], values: Mapping[str, Sequence[_Value]]
) -> dict[str, _Value]:
    """Return values by the names of their variables, such as `torso/conv_1/w`.

    A name that several groups have begins with the group's name. Of equal names within a group, as
    layers have that were not given any, the later ones are numbered: `linear_1/w`, `linear_2/w`.
    Equal networks get equal names.

    Args:
      variables: variables in groups, as a policy and an update have them.
      values: one value for each variable, in the same groups.
    """
    groups = {group: [_own_name(v) for v in members] for group, members in variables.items()}
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


def load_parameters(path: pathlib.Path) -> tuple[dict[str, np.ndarray], int]:
    """Read parameters; nothing in the file is executed.

    Returns:
      The arrays by the names of their variables, and the learner steps that led to them.

    Raises:
      OSError: the file cannot be read.
      ValueError: the file is corrupted, or is none that `save_parameters` wrote.
    """
    with _reading(path) as file:
        parameters = dict(file)
        learner_steps = int(parameters.pop(_LEARNER_STEPS))
    return parameters, learner_steps


def read_steps(path: pathlib.Path) -> int:
    """Return the learner steps of parameters; raises as `load_parameters` does."""
    with _reading(path) as file:
        return int(file[_LEARNER_STEPS])


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[Mapping[str, np.ndarray]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"it is no file of parameters: {error}") from error
