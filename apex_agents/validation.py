"""Checks of configs: every message names the field, the value received and what is allowed."""

import dataclasses
import difflib
import functools
import json
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from apex_agents.json_values import can_be_kept

# Units of a layer. Like most upper limits of the configs it is no limit of the code: a larger
# number is a typing error that would take all memory, or hours, before its cause is visible.
MAX_LAYER_SIZE = 10_000

# The torsos that agents with discrete actions bring; networks.torso_choice makes them.
TORSOS = ("atari", "mlp", "conv", "auto")

_FUNCTION = re.compile(r"\w+(\.\w+)*:\w+")
_MAX_INT = 2**63 - 1
_FLOAT32 = np.finfo(np.float32)


def checked(default: Any, is_allowed: Callable[[Any], bool], allowed: str) -> Any:
    """Make a field of a config that `require_fields` checks.

    Args:
      default: value of the field unless another one is given.
      is_allowed: says of a value of the declared type, None excluded, whether it is allowed.
      allowed: description of the values that are allowed.
    """
    return dataclasses.field(default=default, metadata={_CHECK: (is_allowed, allowed)})


def bounded(default: Any, least: float, most: float | None = None) -> Any:
    """Make a field for numbers from `least` to `most`, both included; without `most` to any."""
    if most is None:
        return checked(default, lambda value: value >= least, f"at least {least}")
    return checked(default, lambda value: least <= value <= most, f"between {least} and {most}")


def positive(default: Any) -> Any:
    """Make a field for numbers greater than 0."""
    return checked(default, lambda value: value > 0, "greater than 0")


def layer_sizes(default: tuple[int, ...], fewest: int, most: int) -> Any:
    """Make a field for the units of `fewest` to `most` layers."""
    return checked(
        default,
        lambda sizes: fewest <= len(sizes) <= most and all(0 < n <= MAX_LAYER_SIZE for n in sizes),
        f"{fewest} to {most} whole numbers from 1 to {MAX_LAYER_SIZE}",
    )


def one_of(*names: str) -> Any:
    """Make a field for one of some names; the first is the default."""
    return checked(names[0], lambda name: name in names, f"one of {names}")


def name_or_function(default: str, names: tuple[str, ...]) -> Any:
    """Make a field for one of some names, or for 'module:function', code of the user's."""
    return checked(
        default,
        lambda name: name in names or bool(_FUNCTION.fullmatch(name)),
        f"one of {names} or 'module:function'",
    )


def require_fields(config: Any, prefix: str) -> None:
    """Check all fields of a config, those of the configs among them included.

    A config that has to check more than single fields has a method `validate(prefix)` that does so.

    Args:
      config: a dataclass whose fields may be made by `checked` and the functions below it.
      prefix: dotted path of the config, such as 'run.', or ''.

    Raises:
      ValueError: a field has another type than declared, or a value that is not allowed, or an
        attribute was set that is no field.
    """
    names = {field.name for field in dataclasses.fields(config)}
    for name in getattr(config, "__dict__", ()):
        if not (name in names or name.startswith("_") or hasattr(type(config), name)):
            raise ValueError(
                f"{prefix}{name} is set, but is no field; the closest: {closest(name, names)}. An "
                "attribute of your own is a field of the class, or its name begins with '_'."
            )
    require_types(config, prefix)
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        if hasattr(value, "validate"):
            value.validate(f"{path}.")
        elif dataclasses.is_dataclass(value):
            require_fields(value, f"{path}.")
        elif _CHECK in field.metadata and value is not None:
            is_allowed, allowed = field.metadata[_CHECK]
            require(is_allowed(value), path, value, allowed)


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise a ValueError that says what is `allowed`, unless the condition on a field holds."""
    if not condition:
        raise ValueError(f"{field} is {value!r}; it has to be {allowed}.")


def require_equal_lengths(config: Any, prefix: str, first: str, *others: str) -> None:
    """Raise a ValueError unless some fields of `config` hold as many numbers as the first one."""
    length = len(getattr(config, first))
    for name in others:
        value, allowed = getattr(config, name), f"as many numbers as {prefix}{first}, {length}"
        require(len(value) == length, prefix + name, value, allowed)


def require_types(config: Any, prefix: str) -> None:
    """Raise a ValueError unless every field of `config` holds a value of its declared type.

    An `int` has to fit into 64 bits. A `float` has to be finite as a float32, and must not become 0
    by the conversion; an `int` is accepted for it. True and False are not numbers. A list is
    accepted for a tuple.
    """
    hints = typing.get_type_hints(type(config))
    for kind in type(config).__mro__:
        if not dataclasses.is_dataclass(kind) or "__dataclass_fields__" in vars(kind):
            continue
        for name in vars(kind).get("__annotations__", ()):
            if typing.get_origin(hints[name]) is not typing.ClassVar:
                raise ValueError(
                    f"{prefix}{name} is declared, but is no field: decorate the class "
                    f"{kind.__name__} with @dataclasses.dataclass."
                )
    for name in (field.name for field in dataclasses.fields(config)):
        declared = hints[name]
        # Such as `int | None` and `Optional[int]`.
        is_union = typing.get_origin(declared) in (types.UnionType, typing.Union)
        kinds = typing.get_args(declared) if is_union else (declared,)
        value = getattr(config, name)
        allowed = " or ".join(_KINDS.get(kind) or f"of type {_name(kind)}" for kind in kinds)
        require(any(_is_a(value, kind) for kind in kinds), f"{prefix}{name}", value, allowed)
        is_json = dataclasses.is_dataclass(value) or _can_be_json(value)
        allowed = "of numbers, strings, lists and dicts, which config.json can hold"
        require(is_json, f"{prefix}{name}", value, allowed)


def closest(name: str, *allowed: Iterable[str]) -> str:
    """List up to three names that resemble `name`, the closest first, or 'none'.

    They are of the first of several collections that has some.
    """
    found = (difflib.get_close_matches(name, sorted(names)) for names in allowed)
    return ", ".join(next(filter(None, found), ["none"]))


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> ValueError:
    """Make the error for a name that is not among the allowed ones; `kind` says what it names."""
    names = sorted(allowed)
    listed = ", ".join(names) if len(names) <= 20 else f"one of {len(names)} names"
    return ValueError(
        f"unknown {kind} {name!r}; closest: {closest(name, names)}; allowed: {listed}"
    )


def get_field(config: Any, path: str) -> Any:
    """Return the field of a config, or the entry of a field that is a dict, with a dotted path."""
    return functools.reduce(_get, path.split("."), config)


def _get(parent: Any, name: str) -> Any:
    return parent[name] if isinstance(parent, dict) else getattr(parent, name)


def field_paths(config: Any, prefix: str = "") -> list[str]:
    """Return the dotted paths of all fields of a config, and of those of the configs inside it."""
    paths = []
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        paths += field_paths(value, f"{path}.") if dataclasses.is_dataclass(value) else [path]
    return paths


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


_CHECK = "check"

_KINDS: dict[Any, str] = {
    Any: "anything",
    int: "a whole number of at most 64 bits",
    float: "a finite float32 number",
    bool: "True or False",
    str: "a string",
    tuple[int, ...]: "a tuple of whole numbers",
    dict[str, Any]: "a dict of names to numbers, strings, tuples, lists, dicts and the like",
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
    if kind == dict[str, Any]:
        return isinstance(value, dict) and can_be_kept(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return value in arguments
    if origin in (tuple, list) and arguments:  # None of `typing.List` alone.
        if not isinstance(value, (tuple, list)):
            return False
        if origin is list or arguments[-1] is Ellipsis:
            return all(_is_a(element, arguments[0]) for element in value)
        return len(value) == len(arguments) and all(map(_is_a, value, arguments))
    if dataclasses.is_dataclass(kind):  # config.json does not name a class of its own for each.
        return type(value) is kind
    return isinstance(value, origin or kind)


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind)) if typing.get_origin(kind) is None else str(kind)


def _can_be_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
