"""The settings that a command line asks for: --config=NAME, and --config.FIELD=VALUE for fields."""

import copy
import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from apex_agents.command_line.arguments import (
    fail,
    parse_flags,
    read_flag_files,
    refuse_arguments,
    warn,
)
from apex_agents.command_line.fields import (
    closest_flag,
    describe_fields,
    find_field,
    find_idle_fields,
    set_field,
    suggest_flag,
)
from apex_agents.config import ExperimentConfig
from apex_agents.presets import CONFIGS, preset_names
from apex_agents.user_code import execute_config_file, extend_path, inherited_path
from apex_agents.validation import closest, get_field

_T = TypeVar("_T")

_FLAG = re.compile(r"--?(no)?config(?:\.([^=]*))?(?:=(.*))?", re.DOTALL)
_NUMBER = r"[-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?"
# The least and the greatest value that a search may try; `log:` if magnitudes matter.
RANGE = re.compile(rf"(log:)?({_NUMBER}):({_NUMBER})")


class Settings(NamedTuple):
    """The settings that a command line asks for.

    Attributes:
      config: settings of the experiment, overrides applied.
      path: file from which they come.
      overrides: new values of fields, by dotted path.
      variants: texts of the values of fields that are given several, by dotted path; the config
        does not have them.
      arguments: arguments that are no flags.
    """

    config: ExperimentConfig
    path: pathlib.Path
    overrides: Mapping[str, Any]
    variants: Mapping[str, Sequence[str]]
    arguments: Sequence[str] = ()

    def to_flags(self, fields: Mapping[str, Any]) -> list[str]:
        """Return the flags that give another command these settings, with some fields changed."""
        values = {**self.overrides, **fields}
        changes = [f"--config.{path}={value}" for path, value in values.items()]
        return [f"--config={self.path}", *changes]


def run_with_settings(
    command: Callable[[Settings], None],
    default: str,
    agent: str = "",
    *,
    has_variants: bool = False,
) -> None:
    """Run a command that has the flag --config.

    Args:
      command: called with the settings of the command line; exits. Its module has the other flags.
      default: name of the settings used without --config.
      agent: name of the agent that the command trains; '' for any agent.
      has_variants: whether fields may be given several values; the command may have arguments
        that are no flags, too.
    """
    given, argv = _take_fields(read_flag_files(sys.argv))
    names = [text for field, text in given if not field]
    if len(names) > 1:
        fail(f"--config is given {len(names)} times: {', '.join(names)}.")
    path = find_config((names or [default])[0], agent)
    config = load_config_file(path)
    fields = [(field, text) for field, text in given if field]
    for field, _ in fields:
        if find_field(config, field) is None:
            flag = closest_flag(config, field)
            fail(f"--config.{field} is no field of {path}; the closest is {flag}.")

    def describe() -> Iterator[str]:
        yield "\n  --config=FILE_OR_NAME: settings, such as apex_dqn_cartpole, or a part of a name"
        yield f"\nsettings of {path.stem}:\n"
        yield from describe_fields(config)

    suggest = functools.partial(suggest_flag, config)
    arguments = parse_flags(command.__module__, argv, suggest, describe)
    if not has_variants:
        refuse_arguments(arguments)
    overrides, variants = _take_variants(fields) if has_variants else (fields, {})
    try:
        changed = _change(config, overrides)
        if not variants:  # Otherwise each of the configs that they make is checked.
            changed.validate()
    except ValueError as error:
        fail(error)
    for message in find_idle_fields(changed, [field for field, _ in fields], variants):
        warn(message)
    # An entry of a dict counts as the dict: alone, the text '7' would not say what type it has.
    whole = [str(find_field(changed, field)) for field, _ in overrides]
    values = {field: get_field(changed, field) for field in whole}
    command(Settings(changed, path.absolute(), values, variants, arguments))


def change_fields(config: ExperimentConfig, fields: Mapping[str, Any]) -> ExperimentConfig:
    """Return a copy of a config with other values of some fields.

    Args:
      config: an experiment's config.
      fields: new values, or their texts, by dotted path.

    Raises:
      ValueError: there is no such field, or what has to be a dict is none.
    """
    return _change(config, [(path, str(value)) for path, value in fields.items()])


def _change(config: ExperimentConfig, fields: Iterable[tuple[str, str]]) -> ExperimentConfig:
    config = copy.deepcopy(config)
    for path, text in fields:
        set_field(config, path, text)
    return config


def _take_fields(argv: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Take --config, whose path is '', and the flags of fields from a command line.

    Returns:
      Paths and texts, and the other arguments.
    """
    given, rest, remaining = [], [], list(argv)
    while remaining:
        argument = remaining.pop(0)
        match = _FLAG.fullmatch(argument)
        if match is None:
            rest.append(argument)
            continue
        is_off, path, text = match.groups()
        if is_off:
            text = "false"
        elif text is None:  # --FLAG VALUE, or --FLAG of a field that is true or false.
            has_value = bool(remaining) and not remaining[0].startswith("--")
            text = remaining.pop(0) if has_value else "true"
        given.append((path or "", text))
    return given, rest


def _take_variants(
    fields: Sequence[tuple[str, str]],
) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """Return the fields that have one value, and the texts of those that have several."""
    single: list[tuple[str, str]] = []
    variants: dict[str, list[str]] = {}
    for path, text in fields:
        values = split_values(text)
        variants.pop(path, None)  # The last one counts.
        if len(values) > 1 or RANGE.fullmatch(values[0]):
            variants[path] = values
        else:
            single.append((path, values[0]))
    return single, variants


def split_values(text: str) -> list[str]:
    """Split the text of several values at its commas.

    A comma separates values unless it is within brackets or quotes: `(64,64),(128,)` are two tuples
    and `'a=1,b=2'` is one text. Quotes around a value do not belong to it.
    """
    values, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth = max(depth + (char in "([{") - (char in ")]}"), 0)
        if char == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += char
    return [re.sub(r"^(['\"])(.*)\1$", r"\2", value.strip(), flags=re.DOTALL) for value in values]


def find_config(
    value: str, agent: str = "", folder: pathlib.Path = pathlib.Path(), given: str = "--config="
) -> pathlib.Path:
    """Return the file that --config names, or exit.

    Args:
      value: path of the file, its name in `CONFIGS`, or a part of only one name.
      agent: name of an agent whose configs are searched if `value` is only a part of a name.
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
    except (OSError, ValueError):  # The name may be too long, for example.
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
