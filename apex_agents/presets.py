"""Files of settings: found by their paths or by names of the package's own ones, and executed."""

import functools
import os
import pathlib
from typing import TypeVar

from apex_agents.config import ExperimentConfig
from apex_agents.user_code import execute_config_file, extend_path, inherited_path, naming_errors
from apex_agents.validation import closest, unknown_name

_T = TypeVar("_T")

# Within the package where it is installed, beside it in a checkout.
_PACKAGE = pathlib.Path(__file__).resolve().parent
CONFIGS = next(
    folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir()
)


def preset_names() -> list[str]:
    """Return the names of all settings that come with the package."""
    return sorted(file.stem for file in CONFIGS.glob("*.py"))


def load_config(name: str) -> ExperimentConfig:
    """Return settings that come with the package, to start from.

    Args:
      name: their name, such as 'apex_dqn_cartpole'; `configs/` has a file for each.

    Returns:
      A new config, which the caller may change.

    Raises:
      ValueError: there are no settings of that name, or they need a package that is missing.
    """
    known = preset_names()
    if name not in known:
        raise unknown_name("config", name, known)
    return execute_config_file(CONFIGS / f"{name}.py", is_recorded=False)


def find_config(value: str, agent: str = "", folder: pathlib.Path = pathlib.Path()) -> pathlib.Path:
    """Return the absolute path of the file that --config names.

    Args:
      value: path of the file, its name in `CONFIGS`, or a part of only one name.
      agent: name of an agent whose configs are searched if `value` is only a part of a name.
      folder: folder in which the path is looked up before the current one.

    Raises:
      ValueError: there is no such file.
    """
    path = pathlib.Path(os.path.expanduser(value))
    named, known = CONFIGS / f"{value.removesuffix('.py')}.py", preset_names()
    words = [name for name in known if f"_{value}_" in f"_{name}_"]
    containing = words or [name for name in known if value in name]
    suitable = [name for name in containing if name.startswith(agent)]
    if f"{agent}_{value}" in suitable:
        suitable = [f"{agent}_{value}"]
    found = [CONFIGS / f"{name}.py" for name in suitable if len(suitable) == 1]
    for file in [named] if value in known else [folder / path, path, named, *found]:
        if is_file(file):
            return file.absolute()
    own = [name for name in known if name.startswith(agent)]
    own += [name.removeprefix(f"{agent}_") for name in own]
    suggested = ", ".join(suitable or containing) or closest(path.stem, own, known)
    raise ValueError(
        f"{value} is neither a file nor one of {', '.join(known)}; the closest: {suggested}."
    )


def is_file(path: pathlib.Path) -> bool:
    """Return whether `path` is an existing file; impossible paths are not."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # The name may be too long, for example.
        return False


@functools.cache
def load_config_file(path: pathlib.Path) -> ExperimentConfig:
    """Execute a file of settings, once, and return its config; see `execute_file`."""
    is_ours = path.resolve().parent == CONFIGS
    return execute_file(path, ExperimentConfig, "get_config", is_recorded=not is_ours)


def execute_file(
    path: pathlib.Path, kind: type[_T], function: str, *, is_recorded: bool = False
) -> _T:
    """Execute a file, and return the result of one of its functions.

    From then on modules in the current folder and in the file's folder can be imported.

    Args:
      path: the file.
      kind: public class of this package, of which the result has to be.
      function: name of the function.
      is_recorded: whether the nodes of a run need the file's classes and functions.

    Raises:
      ValueError: the file cannot be executed, or the result is of a different class.
    """
    is_ours = path.resolve().is_relative_to(CONFIGS)
    own = [] if is_ours else [str(path.absolute().parent)]
    extend_path([os.getcwd(), *own, *inherited_path()])
    with naming_errors(f"{path} cannot be read"):
        value = execute_config_file(path, is_recorded, function)
    if not isinstance(value, kind):
        raise ValueError(f"{path} gives {value!r}; it has to be an apex_agents.{kind.__name__}.")
    return value
