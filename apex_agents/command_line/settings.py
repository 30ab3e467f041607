"""The flag --config and the flags of its fields."""

import copy
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app, flags
from ml_collections import config_flags

from apex_agents.command_line.config_files import find_config, load_config_file
from apex_agents.command_line.dict_entries import dict_of, join_entries
from apex_agents.command_line.errors import fail, leave, parse_flags, refuse_arguments, warn
from apex_agents.command_line.field_help import describe_fields
from apex_agents.command_line.field_names import check_fields, make_suggest
from apex_agents.command_line.field_parsers import register_field_parsers
from apex_agents.command_line.idle_fields import find_idle_fields
from apex_agents.command_line.variants import take_variants
from apex_agents.config import ExperimentConfig
from apex_agents.exit_codes import EXIT_SUCCESS
from apex_agents.validation import closest_field, field_paths


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
      command: called with the settings of the command line; exits.
      default: name of the settings used without --config.
      agent: name of the agent that the command trains; '' for any agent.
      has_variants: whether fields may be given several values; the command may have arguments
        that are no flags, too.
    """
    parsed: list[Settings] = []

    def parse(argv: Sequence[str]) -> list[str]:
        settings, arguments = _parse(argv, default, agent, has_variants)
        parsed.append(settings)
        return arguments

    def run(argv: Sequence[str]) -> None:
        if not has_variants:
            refuse_arguments(argv)
        settings, variants = parsed[0], parsed[0].variants
        if _is_valid(settings.config):  # Otherwise the command's error is all that is said.
            given = [*settings.overrides, *variants]
            for message in find_idle_fields(settings.config, given, variants):
                warn(message)
        command(settings._replace(arguments=argv[1:]))

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
        if path not in known and dict_of(config, path) is None:
            raise ValueError(f"{path} is no field; the closest: {closest_field(path, known)}.")
    argv = ["", *[f"--config.{path}={value}" for path, value in fields.items()]]
    values = flags.FlagValues()
    try:
        argv = join_entries(config, argv)
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
        check_fields(config, path, argv)
        argv, variants = take_variants(argv) if has_variants else (argv, {})
        argv = join_entries(config, argv)
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
        arguments = parse_flags(argv, make_suggest(config))
    except flags.Error as error:
        fail(error)
    except BrokenPipeError:  # Of --help, as for `head`.
        leave(EXIT_SUCCESS)
    except Exception as error:  # Parsers of single flags raise errors of other types, too.
        fail(f"{' '.join(argv[1:])} cannot be read: {type(error).__name__}: {error}")
    flag: Any = flags.FLAGS["config"]
    return Settings(flags.FLAGS.config, path.absolute(), flag.override_values, variants), arguments


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
