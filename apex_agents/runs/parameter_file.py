"""The parameters of a policy in an `.npz` file, with the learner step at which they were copied."""

import io
import pathlib
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from apex_agents.runs.files import try_to_replace_file

_LEARNER_STEPS = "learner_steps"  # Variables are called `<name>/<index>`.


def save_parameters(
    path: pathlib.Path, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int
) -> bool:
    """Write parameters atomically, report failures, and return whether they were written.

    Args:
      path: path of the file.
      variables: arrays by name.
      learner_steps: learner steps that led to them.
    """
    return try_to_replace_file(path, encode_parameters(variables, learner_steps))


def encode_parameters(
    variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int
) -> memoryview:
    """Return the content of the file that `save_parameters` writes."""
    arrays = {f"{name}/{i}": a for name, group in variables.items() for i, a in enumerate(group)}
    content = io.BytesIO()  # Closing a zip file on a full disk would raise other errors, too.
    np.savez(content, **arrays, **{_LEARNER_STEPS: np.asarray(learner_steps)})
    return content.getbuffer()


def load_parameters(path: pathlib.Path) -> tuple[dict[str, list[np.ndarray]], int]:
    """Read parameters; nothing in the file is executed.

    Returns:
      The variables, arrays by name, and the learner steps that led to them.

    Raises:
      OSError: the file cannot be read.
      ValueError: the file is corrupted, or is none that `save_parameters` wrote.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        learner_steps = int(arrays.pop(_LEARNER_STEPS))
    except (EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"it is no file of parameters: {error}") from error
    variables: dict[str, list[np.ndarray]] = {}
    for key, array in arrays.items():
        variables.setdefault(key.rpartition("/")[0], []).append(array)
    return variables, learner_steps
