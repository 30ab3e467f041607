"""The settings that a command line asks for: --config=NAME, and --config.FIELD=VALUE for fields."""

import functools
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apex_agents.command_line.arguments import (
    mistakes_end_command,
    parse_flags,
    read_flag_files,
    refuse_arguments,
    warn,
)
from apex_agents.command_line.fields import (
    closest_flag,
    describe_fields,
    find_idle_fields,
    suggest_flag,
)
from apex_agents.config import ExperimentConfig
from apex_agents.fields import RANGE, change_fields, find_field, get_field, split_values
from apex_agents.presets import find_config, load_config_file

_FLAG = re.compile(r"--?(no)?config(?:\.([^=]*))?(?:=(.*))?", re.DOTALL)


class Settings(NamedTuple):
    """The settings that a command line asks for.

    Attributes:
      config: settings of the experiment, overrides applied.
      path: file from which they come.
      overrides: new values of fields, by dotted path.
      variants: texts of the values of fields that are given several, by dotted path; the config
        does not have them.
      arguments: arguments that are no flags.
      given: names of the flags --config and --config.FIELD that are given.
    """

    config: ExperimentConfig
    path: pathlib.Path
    overrides: Mapping[str, Any]
    variants: Mapping[str, Sequence[str]]
    arguments: Sequence[str] = ()
    given: Sequence[str] = ()


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
    fields = [(field, text) for field, text in given if field]
    with mistakes_end_command():
        path, config = _load(names or [default], agent)
        for field, _ in fields:
            if find_field(config, field) is None:
                flag = closest_flag(config, field)
                raise ValueError(f"--config.{field} is no field of {path}; the closest is {flag}.")

    def describe() -> Iterator[str]:
        yield "\n  --config=FILE_OR_NAME: settings, such as apex_dqn_cartpole, or a part of a name"
        yield f"\nsettings of {path.stem}:\n"
        yield from describe_fields(config)

    suggest = functools.partial(suggest_flag, config)
    arguments = parse_flags(command.__module__, argv, suggest, describe)
    if not has_variants:
        refuse_arguments(arguments)
    overrides, variants = _take_variants(fields) if has_variants else (fields, {})
    with mistakes_end_command():
        changed = change_fields(config, overrides)
        if not variants:  # Otherwise each of the configs that they make is checked.
            changed.validate()
    for message in find_idle_fields(changed, [field for field, _ in fields], variants):
        warn(message)
    # An entry of a dict counts as the dict: alone, the text '7' would not say what type it has.
    whole = [str(find_field(changed, field)) for field, _ in overrides]
    values = {field: get_field(changed, field) for field in whole}
    flags = [f"config.{field}".rstrip(".") for field, _ in given]
    command(Settings(changed, path, values, variants, arguments, flags))


def _load(names: Sequence[str], agent: str) -> tuple[pathlib.Path, ExperimentConfig]:
    if len(names) > 1:
        raise ValueError(f"--config is given {len(names)} times: {', '.join(names)}.")
    try:
        path = find_config(names[0], agent)
        return path, load_config_file(path)
    except ValueError as error:
        raise ValueError(f"--config={error}") from error


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
