"""Checks of configs: one message that names the field, what it holds and what is allowed."""

import dataclasses
import types
import typing
from typing import Any

import numpy as np

# Units of a layer. Like most upper limits of the configs it is no limit of the code: beyond it a
# number is a slip of the finger that would take all memory, or hours, before anyone sees why.
MAX_LAYER_SIZE = 10_000

_MAX_INT = 2**63 - 1
_FLOAT32 = np.finfo(np.float32)


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise unless a config field holds an allowed value.

    Args:
      condition: whether the value is allowed.
      field: the field's dotted path, as a user writes it on the command line.
      value: what the field holds.
      allowed: what it may hold, in words.

    Raises:
      ValueError: naming the field, the value and what is allowed.
    """
    if not condition:
        raise ValueError(f"{field} is {_show(value)}; it has to be {allowed}.")


def require_types(config: Any, prefix: str) -> None:
    """Raise a ValueError unless every field of `config` holds what it is declared to hold.

    An `int` has to fit into 64 bits; a `float` has to be a number that is neither 0 nor infinite
    as a float32 unless it is 0, and may be given as an `int`. True and False are neither of them. A
    list will do for a tuple.
    """
    for name, declared in typing.get_type_hints(type(config)).items():
        is_union = isinstance(declared, types.UnionType)  # Such as `int | None`.
        kinds = typing.get_args(declared) if is_union else (declared,)
        value = getattr(config, name)
        allowed = " or ".join(_KINDS.get(kind) or f"of type {kind.__name__}" for kind in kinds)
        require(any(_is_a(value, kind) for kind in kinds), f"{prefix}{name}", value, allowed)


def require_positive(config: Any, prefix: str, *fields: str) -> None:
    """Raise a ValueError unless the named numeric fields of `config` are > 0, or None."""
    for name in fields:
        value = getattr(config, name)
        require(value is None or value > 0, f"{prefix}{name}", value, "greater than 0")


def require_between(config: Any, prefix: str, least: int, most: int, *fields: str) -> None:
    """Raise a ValueError unless the named fields of `config` lie in [least, most] or are None."""
    for name in fields:
        value = getattr(config, name)
        require(
            value is None or least <= value <= most,
            f"{prefix}{name}",
            value,
            f"between {least} and {most}",
        )


def field_paths(config: Any, prefix: str = "") -> list[str]:
    """Return the dotted path of every field of a config dataclass and of those inside it."""
    paths = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            paths.extend(field_paths(value, f"{prefix}{field.name}."))
        else:
            paths.append(prefix + field.name)
    return paths


def _show(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python prints no whole number of more than 4300 digits.
        return f"<{type(value).__name__} that is too large to be printed>"


_KINDS: dict[Any, str] = {
    Any: "anything",
    int: "a whole number of at most 64 bits",
    float: "a finite float32 number",
    bool: "True or False",
    str: "a string",
    tuple[int, ...]: "a tuple of whole numbers",
    types.NoneType: "None",
}


def _is_a(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind is int:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return is_int and abs(value) <= _MAX_INT
    if kind is float:
        if isinstance(value, float):
            return value == 0.0 or bool(_FLOAT32.tiny <= abs(value) <= _FLOAT32.max)
        return _is_a(value, int)
    if kind == tuple[int, ...]:
        return isinstance(value, (tuple, list)) and all(_is_a(element, int) for element in value)
    return isinstance(value, kind)
