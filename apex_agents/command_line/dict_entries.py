"""Flags of single entries of dicts: --config.environment.kwargs.is_slippery=false."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from apex_agents.command_line.field_parsers import parse_dict, parse_value
from apex_agents.validation import field_paths, get_field

_FLAG = re.compile(r"--?config\.([^=]+)(?:=(.*))?", re.DOTALL)


def dict_of(config: Any, path: str) -> str | None:
    """Return the field that is a dict and has a dotted path, or an entry with it; or None."""
    for field in field_paths(config):
        if f"{path}.".startswith(f"{field}.") and isinstance(get_field(config, field), dict):
            return field
    return None


def join_entries(config: Any, argv: Sequence[str]) -> list[str]:
    """Return a command line in which the entries of a dict are one flag for all of it.

    They change the dict that the config has, or that a flag before them gives as a whole.

    Raises:
      flags.IllegalFlagValueError: that flag gives no dict, or an entry is within what is none.
    """
    rest: list[str] = []
    joined: dict[str, dict[str, Any]] = {}
    arguments = iter(argv)
    for argument in arguments:
        match = _FLAG.fullmatch(argument)
        field = dict_of(config, match[1]) if match else None
        if match is None or field is None:
            rest.append(argument)
            continue
        text = next(arguments, "") if match[2] is None else match[2]
        try:
            if match[1] == field:
                joined[field] = parse_dict(text)
            else:
                entries = joined.setdefault(field, copy.deepcopy(get_field(config, field)))
                _set(entries, match[1].removeprefix(f"{field}.").split("."), parse_value(text))
        except ValueError as error:
            raise flags.IllegalFlagValueError(f"--config.{match[1]}={text}: {error}") from error
    return [*rest, *(f"--config.{field}={entries!r}" for field, entries in joined.items())]


def _set(entries: Any, names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        entries = entries.setdefault(name, {})
        if not isinstance(entries, dict):
            raise ValueError(f"{name} is {entries!r}, which has no entries")
    entries[names[-1]] = value
