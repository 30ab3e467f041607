"""The fields of a config by their dotted paths: listed, read, and set from texts."""

import ast
import contextlib
import copy
import dataclasses
import difflib
import functools
import json
import re
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

_T = TypeVar("_T")
_NUMBER = r"[-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?"
# The least and the greatest value that a search may try; `log:` if magnitudes matter.
RANGE = re.compile(rf"(log:)?({_NUMBER}):({_NUMBER})")
_BOOL = TypeAdapter(bool)


class ReadWith(NamedTuple):
    """Marks a field, in its `Annotated` type, that has no effect with some values of another one.

    Attributes:
      field: name of the other field, in the same config.
      values: values of that field with which the marked one is read.
    """

    field: str
    values: tuple[Any, ...]


def with_fields(config: _T, **values: Any) -> _T:
    """Return a copy with other values, which keeps attributes that are no fields.

    `dataclasses.replace` leaves them out.
    """
    config = copy.copy(config)
    vars(config).update(values)
    return config


def get_field(config: Any, path: str) -> Any:
    """Return the field of a config, or the entry of a field that is a dict, with a dotted path."""
    return functools.reduce(_get, path.split("."), config)


def _get(parent: Any, name: str) -> Any:
    return parent[name] if isinstance(parent, dict) else getattr(parent, name)


def field_paths(config: Any, prefix: str = "") -> list[str]:
    """Return the dotted paths of all fields of a config, also of nested configs."""
    paths = []
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        paths += field_paths(value, f"{path}.") if dataclasses.is_dataclass(value) else [path]
    return paths


def read_conditions(
    config: Any, prefix: str = "", inherited: ReadWith | None = None
) -> dict[str, ReadWith]:
    """Return what is marked with `ReadWith`, of a config and those inside it, by dotted path.

    The names of the other fields are dotted paths, too. A mark on a nested config holds for all
    of its fields.
    """
    conditions: dict[str, ReadWith] = {}
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        marks = getattr(hints[field.name], "__metadata__", ())
        own = [ReadWith(prefix + m.field, m.values) for m in marks if isinstance(m, ReadWith)]
        condition = own[0] if own else inherited
        if dataclasses.is_dataclass(value):
            conditions |= read_conditions(value, f"{path}.", condition)
        elif condition:
            conditions[path] = condition
    return conditions


def closest_field(path: str, fields: Iterable[str]) -> str:
    """Return the one of some dotted paths that resembles `path` most.

    The last part counts most, which may be abbreviated: 'agent.lr' is 'agent.learning_rate'.
    """

    def resemblance(field: str) -> tuple[bool, bool, float]:
        names = (path.rpartition(".")[2], field.rpartition(".")[2])
        ratios = [difflib.SequenceMatcher(None, *pair).ratio() for pair in (names, (path, field))]
        return field.startswith(f"{path}."), is_short_for(names[0], field), sum(ratios)

    return max(fields, key=resemblance)


def is_short_for(name: str, path: str) -> bool:
    """Return whether a name is the last part of a dotted path, or the initials of its words."""
    last = path.rpartition(".")[2]
    return name in (last, "".join(word[:1] for word in last.split("_")))


def change_fields(config: _T, fields: Iterable[tuple[str, Any]]) -> _T:
    """Return a copy of a config with other values of some fields.

    Whether the fields may have these values is checked with the whole config.

    Args:
      config: a dataclass.
      fields: dotted paths of fields, or of entries of fields that are dicts, and new values or
        their texts.

    Raises:
      ValueError: there is no such field, or a value that has to be a dict is not one.
    """
    config = copy.deepcopy(config)
    for path, value in fields:
        _set_field(config, path, str(value))
    return config


def find_field(config: Any, path: str) -> str | None:
    """Return the field that has a dotted path, or the dict that may have an entry with it."""
    for field in field_paths(config):
        is_entry = path.startswith(f"{field}.") and isinstance(get_field(config, field), dict)
        if path == field or is_entry:
            return field
    return None


def _set_field(config: Any, path: str, text: str) -> None:
    field = find_field(config, path)
    if field is None:
        meant = closest_field(path, field_paths(config))
        raise ValueError(f"{path} is no field; the closest: {meant}.")
    try:
        if path != field:
            names = path.removeprefix(f"{field}.").split(".")
            _set_entry(get_field(config, field), names, parse_value(text))
            return
        section_path, _, name = field.rpartition(".")
        section = get_field(config, section_path) if section_path else config
        setattr(section, name, _parse(text, typing.get_type_hints(type(section))[name]))
    except ValueError as error:
        raise ValueError(f"--config.{path}={text}: {error}") from error


def _set_entry(entries: Any, names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        entries = entries.setdefault(name, {})
        if not isinstance(entries, dict):
            raise ValueError(f"{name} is {entries!r}, which has no entries")
    entries[names[-1]] = value


def _parse(text: str, declared: Any) -> Any:
    """Return the value of a text for a field of a declared type, the text itself if it has none."""
    kinds = typing.get_args(declared) if is_union(declared) else (declared,)
    origins = [typing.get_origin(kind) or kind for kind in kinds]
    if type(None) in kinds and text.lower() == "none":
        return None
    if str in origins or any(text in typing.get_args(kind) for kind in kinds):
        return text
    if bool in origins:
        with contextlib.suppress(ValueError):
            return _BOOL.validate_python(text)
    value = parse_value(text)
    if dict in origins and not isinstance(value, dict):
        raise ValueError(
            "it has to be a dict as JSON or Python writes it, with its quotes, such as "
            "'{\"size\": 7}', or single entries of it, such as kwargs.size=7"
        )
    if isinstance(value, float) and int in origins and value.is_integer():
        return int(value)  # An example is 1e6.
    if type(value) is int and float in origins and abs(value) < 2**63:
        return float(value)
    if tuple in origins and not isinstance(value, (tuple, list)):
        return (value,)
    return value


def is_union(declared: Any) -> bool:
    """Return whether a declared type is one of several, such as `int | None`."""
    return typing.get_origin(declared) in (types.UnionType, typing.Union)


def parse_value(text: str) -> Any:
    """Return the value of a text in JSON or Python syntax; the text itself if it has none."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text, parse_constant=int)  # It raises for NaN and infinity.
    try:
        return ast.literal_eval(_JSONNames().visit(ast.parse(text.strip(), mode="eval")))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


class _JSONNames(ast.NodeTransformer):
    """Replaces the names that JSON has for True, False and None."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        names = {"true": True, "false": False, "null": None}
        return ast.Constant(names[node.id]) if node.id in names else node


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
