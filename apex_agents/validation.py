"""Checks of configs: one message that names the field, what it holds and what is allowed."""

import dataclasses
import math
from typing import Any


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
        raise ValueError(f"{field} is {value!r}; it has to be {allowed}.")


def require_positive(config: Any, prefix: str, *fields: str, optional: bool = False) -> None:
    """Raise a ValueError unless the named numeric fields of `config` are > 0 (or None).

    Fields declared as `int` also have to hold whole numbers.
    """
    whole_fields = {f.name for f in dataclasses.fields(config) if f.type in (int, int | None)}
    for name in fields:
        value = getattr(config, name)
        if optional and value is None:
            continue
        positive = isinstance(value, (int, float)) and 0 < value < math.inf
        require(positive, f"{prefix}{name}", value, "greater than 0")
        whole = name not in whole_fields or isinstance(value, int)
        require(whole, f"{prefix}{name}", value, "a whole number")


def require_fraction(config: Any, prefix: str, *fields: str) -> None:
    """Raise a ValueError unless the named numeric fields of `config` lie in [0, 1]."""
    for name in fields:
        value = getattr(config, name)
        inside = isinstance(value, (int, float)) and 0 <= value <= 1
        require(inside, f"{prefix}{name}", value, "between 0 and 1")


def field_paths(config: Any, prefix: str = "") -> list[str]:
    """Return the dotted path of every field of a (nested) config dataclass."""
    paths = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        paths.append(prefix + field.name)
        if dataclasses.is_dataclass(value):
            paths.extend(field_paths(value, f"{prefix}{field.name}."))
    return paths
