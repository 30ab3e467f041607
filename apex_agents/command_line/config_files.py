"""The files that --config and flags like it name."""

import os
import pathlib
from typing import TypeVar

from apex_agents.command_line.errors import fail
from apex_agents.config import ExperimentConfig
from apex_agents.presets import CONFIGS, preset_names
from apex_agents.user_code import execute_config_file, extend_path, inherited_path
from apex_agents.validation import closest

_T = TypeVar("_T")


def find_config(
    value: str, agent: str = "", folder: pathlib.Path = pathlib.Path(), given: str = "--config="
) -> pathlib.Path:
    """Return the file that --config names, or exit.

    Args:
      value: path of the file, its name in `CONFIGS`, or a part of only one name.
      agent: name of an agent, with which names begin of which only a part is given.
      folder: folder in which the path is looked up before the current one.
      given: how the error message introduces the value.
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
            return file
    own = [name for name in known if name.startswith(agent)]
    own += [name.removeprefix(f"{agent}_") for name in own]
    suggested = ", ".join(suitable or containing) or closest(path.stem, own, known)
    fail(
        f"{given}{value} is neither a file nor one of {', '.join(known)}; the closest: {suggested}."
    )


def is_file(path: pathlib.Path) -> bool:
    """Return whether a path, which may be no possible one, is that of a file."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # Such as a name that is too long.
        return False


def load_config_file(path: pathlib.Path) -> ExperimentConfig:
    """Execute a file of settings, once, and return its config, or exit; see `execute_file`."""
    is_ours = path.resolve().parent == CONFIGS
    return execute_file("config", path, ExperimentConfig, "get_config", is_recorded=not is_ours)


def execute_file(
    flag: str, path: pathlib.Path, kind: type[_T], function: str, *, is_recorded: bool = False
) -> _T:
    """Execute the file that a flag names, and return what one of its functions returns, or exit.

    From then on modules in the current folder and in that of the file can be imported.

    Args:
      flag: name of the flag.
      path: the file.
      kind: public class of this package, of which the result has to be.
      function: name of the function.
      is_recorded: whether the nodes of a run need the file's classes and functions.
    """
    is_ours = path.resolve().is_relative_to(CONFIGS)
    own = [] if is_ours else [str(path.absolute().parent)]
    extend_path([os.getcwd(), *own, *inherited_path()])
    try:
        value = execute_config_file(path, is_recorded, function)
    except (Exception, SystemExit) as error:  # The file is code and may raise anything.
        fail(f"--{flag}={path} cannot be read: {type(error).__name__}: {error}")
    if not isinstance(value, kind):
        fail(f"--{flag}={path} gives {value!r}; it has to be an apex_agents.{kind.__name__}.")
    return value
