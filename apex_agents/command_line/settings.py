"""The flag --config and the flags of its fields."""

import copy
import os
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from absl import app, flags
from ml_collections import config_flags

from apex_agents.command_line.errors import fail, parse_flags, refuse_arguments, warn
from apex_agents.command_line.field_help import describe_fields
from apex_agents.command_line.field_parsers import register_field_parsers
from apex_agents.command_line.idle_fields import find_idle_fields
from apex_agents.command_line.variants import take_variants
from apex_agents.config import ExperimentConfig
from apex_agents.presets import CONFIGS, preset_names
from apex_agents.user_code import execute_config_file, extend_path, inherited_path
from apex_agents.validation import closest, closest_field, field_paths, is_short_for

_T = TypeVar("_T")
# What Stable-Baselines3 calls some fields.
_NAMES = {"total_timesteps": "max_actor_steps", "n_envs": "num_envs_per_actor", "gamma": "discount"}


class Settings(NamedTuple):
    """The settings that a command line asks for.

    Attributes:
      config: settings of the experiment, overrides applied.
      path: file from which they come.
      overrides: new values of fields, by dotted path.
      variants: texts of the values of fields that are given several, by dotted path; the config
        does not have them.
    """

    config: ExperimentConfig
    path: pathlib.Path
    overrides: Mapping[str, Any]
    variants: Mapping[str, Sequence[str]]

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
      command: called with the settings of the command line; exits.
      default: name of the settings used without --config.
      agent: name of the agent that the command trains; '' for any agent.
      has_variants: whether fields may be given several values.
    """
    parsed: list[Settings] = []

    def parse(argv: Sequence[str]) -> list[str]:
        settings, arguments = _parse(argv, default, agent, has_variants)
        parsed.append(settings)
        return arguments

    def run(argv: Sequence[str]) -> None:
        refuse_arguments(argv)
        settings, variants = parsed[0], parsed[0].variants
        if _is_valid(settings.config):  # Otherwise the command's error is all that is said.
            given = [*settings.overrides, *variants]
            for message in find_idle_fields(settings.config, given, variants):
                warn(message)
        command(settings)

    app.run(run, flags_parser=parse)


def _is_valid(config: ExperimentConfig) -> bool:
    try:
        config.validate()
    except ValueError:
        return False
    return True


def change_fields(config: ExperimentConfig, fields: Mapping[str, Any]) -> ExperimentConfig:
    """Return a copy of a config with other values of some fields.

    Args:
      config: an experiment's config.
      fields: new values, or their texts, by dotted path.

    Raises:
      ValueError: there is no such field, or a text cannot be read as a value of its field.
    """
    known = field_paths(config)
    for path in fields:
        if path not in known:
            raise ValueError(f"{path} is no field; the closest: {closest_field(path, known)}.")
    argv = ["", *[f"--config.{path}={value}" for path, value in fields.items()]]
    values = flags.FlagValues()
    try:
        register_field_parsers()
        config_flags.DEFINE_config_dataclass(
            "config", copy.deepcopy(config), flag_values=values, sys_argv=argv
        )
        values(argv)
    except (flags.Error, TypeError, SyntaxError) as error:
        raise ValueError(f"{' '.join(argv[1:])} cannot be read: {error}") from error
    return values.config


def _parse(
    argv: Sequence[str], default: str, agent: str, has_variants: bool
) -> tuple[Settings, list[str]]:
    """Return the settings of a command line and its arguments that are no flags, or exit."""
    try:
        argv = flags.FLAGS.read_flags_from_files(list(argv), force_gnu=False)
        value, argv = _take_config_flag(argv, default)
        path = find_config(value, agent)
        config = load_config_file(path)
        _check_fields(config, path, argv)
        argv, variants = take_variants(argv) if has_variants else (argv, {})
        sys.modules["__main__"].__doc__ = "\n".join(  # Printed by --help.
            [sys.modules["__main__"].__doc__ or "", *describe_fields(config, path.stem)]
        )
        register_field_parsers()
        config_flags.DEFINE_config_dataclass(
            "config",
            config,
            "Settings: a name such as apex_dqn_cartpole, or a part of it, or a Python file; "
            "--config.FIELD=VALUE changes one of those above.",
            sys_argv=argv,
        )
        flags.FLAGS["config"].default_as_str = f"'{value}'"  # What --help shows.
        flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS["config"])
        arguments = parse_flags(argv, _suggest_field(config))
    except flags.Error as error:
        fail(error)
    except Exception as error:  # Parsers of single flags raise errors of other types, too.
        fail(f"{' '.join(argv[1:])} cannot be read: {type(error).__name__}: {error}")
    flag: Any = flags.FLAGS["config"]
    return Settings(flags.FLAGS.config, path, flag.override_values, variants), arguments


def find_config(
    value: str, agent: str = "", folder: pathlib.Path = pathlib.Path(), given: str = "--config="
) -> pathlib.Path:
    """Return the file that --config names, or exit.

    Args:
      value: path of the file, its name in `CONFIGS`, or words of only one name.
      agent: name of an agent, with which names of which there are only some words begin.
      folder: folder in which the path is looked up before the current one.
      given: how the error message introduces the value.
    """
    path = pathlib.Path(os.path.expanduser(value))
    named, known = CONFIGS / f"{value.removesuffix('.py')}.py", preset_names()
    containing = [name for name in known if f"_{value}_" in f"_{name}_"]
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


def _take_config_flag(argv: Sequence[str], default: str) -> tuple[str, list[str]]:
    """Return the value of --config, and the command line without this flag."""
    values, rest, arguments = [], [], iter(argv)
    for argument in arguments:
        match = re.fullmatch(r"--?config(?:=(.*))?", argument, re.DOTALL)
        if match is None:
            rest.append(argument)
        else:
            values.append(next(arguments, "") if match[1] is None else match[1])
    if len(values) > 1:
        fail(f"--config is given {len(values)} times: {', '.join(values)}.")
    return (values or [default])[0], rest


def _check_fields(config: ExperimentConfig, path: pathlib.Path, argv: Sequence[str]) -> None:
    """Exit unless the config has all fields that are to be changed."""
    fields = field_paths(config)
    overrides = [re.match(r"--?(?:no)?config\.([^=]*)", argument) for argument in argv]
    for field in (match[1] for match in overrides if match):
        if field not in fields:
            fail(
                f"--config.{field} is no field of {path}; the closest is "
                f"--config.{closest_field(field, fields)}."
            )


def _suggest_field(config: ExperimentConfig) -> Callable[[str], str | None]:
    """Return the function that finds the flag of a field, such as --config.run.seed for 'seed'."""

    def suggest(flag: str) -> str | None:
        flag = _NAMES.get(flag, flag)
        fields = [field for field in field_paths(config) if is_short_for(flag, field)]
        return f"--config.{closest_field(flag, fields)}" if fields else None

    return suggest
