"""Checks of configs: every message names the field, the value received and what is allowed.

The declared types of fields, with their bounds, are checked by pydantic; the method `rules` of a
config has the conditions between several of its fields.
"""

import contextlib
import dataclasses
import difflib
import functools
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from apex_agents.fields import is_union
from apex_agents.json_values import can_be_kept

_FUNCTION = re.compile(r"\w+(\.\w+)*:\w+")
_MAX_INT = 2**63 - 1
_FLOAT32 = np.finfo(np.float32)
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


def name_or_function(*names: str) -> AfterValidator:
    """Make the check of a string that is one of some names, or 'module:function' of a user."""
    allowed = f"{', '.join(map(repr, names))} or 'module:function'"
    return matching(lambda name: name in names or bool(_FUNCTION.fullmatch(name)), allowed)


def matching(is_allowed: Callable[[Any], bool], allowed: str) -> AfterValidator:
    """Make a check of a type's values; `allowed` describes the values that pass."""

    def check(value: Any) -> Any:
        if not is_allowed(value):
            raise PydanticCustomError("allowed", "Input should be {allowed}", {"allowed": allowed})
        return value

    return AfterValidator(check)


Probability = Annotated[float, Field(ge=0, le=1)]
BuilderName = Annotated[str, name_or_function("standard")]
# A condition between fields: the name of a field, whether its value is allowed, the allowed values.
Rule = tuple[str, bool, str]


def check_config(config: Any, prefix: str = "") -> None:
    """Check all fields of a config, also of nested configs.

    An `int` has to fit into 64 bits. A `float` has to be finite as a float32, and must not become 0
    by the conversion; an `int` is accepted for it. True and False are not numbers. A list is
    accepted for a tuple.

    Args:
      config: a dataclass, which may have a method `rules` that yields each `Rule`.
      prefix: dotted path of the config, such as 'run.', or ''.

    Raises:
      ValueError: a field does not have its declared type, or has a value that is not allowed, or an
        attribute was set that is no field.
    """
    _check_declarations(config, prefix)
    make_config(type(config), _values(config), prefix)
    _check_rules(config, prefix)


def make_config(kind: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Make a config from the values of its fields; others have their defaults.

    Args:
      kind: the dataclass.
      values: values by field, nested configs as dicts; lists may stand for tuples.
      prefix: dotted path of the config, such as 'run.', or ''.

    Raises:
      ValueError: a value does not have the declared type, or is not allowed, or there is no field
        of its name.
    """
    computed = {field.name for field in dataclasses.fields(kind) if not field.init}
    values = {name: value for name, value in values.items() if name not in computed}
    try:
        (config,) = _adapter(kind).validate_json(json.dumps([values]))
    except ValidationError as error:
        first = error.errors()[0]
        allowed = " or None" if _may_be_none(kind, first["loc"][1:]) else ""
        raise ValueError(_describe(first, values, prefix.rstrip("."), allowed)) from error
    _copy_dicts(values, config)
    return config


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise a ValueError that says what is `allowed`, unless the condition on a field holds."""
    if not condition:
        raise ValueError(f"{field} is {value!r}; it has to be {allowed}.")


def closest(name: str, *allowed: Iterable[str]) -> str:
    """List up to three names that resemble `name`, the closest first, or 'none'.

    Later collections are tried only if earlier ones have no match.
    """
    found = (difflib.get_close_matches(name, sorted(names)) for names in allowed)
    return ", ".join(next(filter(None, found), ["none"]))


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> ValueError:
    """Make the error for a name that is not allowed; `kind` is a noun, such as 'game'."""
    names = sorted(allowed)
    listed = ", ".join(names) if len(names) <= 20 else f"one of {len(names)} names"
    return ValueError(
        f"unknown {kind} {name!r}; closest: {closest(name, names)}; allowed: {listed}"
    )


def _check_declarations(config: Any, prefix: str) -> None:
    """Check that attributes are fields, of the classes declared, with values that can be kept."""
    kind = type(config)
    hints, names = typing.get_type_hints(kind), [field.name for field in dataclasses.fields(kind)]
    for name in getattr(config, "__dict__", ()):
        if not (name in names or name.startswith("_") or hasattr(kind, name)):
            raise ValueError(
                f"{prefix}{name} is set, but is no field; the closest: {closest(name, names)}. An "
                "attribute of your own is a field of the class, or its name begins with '_'."
            )
    for base in kind.__mro__:
        is_undecorated = dataclasses.is_dataclass(base) and "__dataclass_fields__" not in vars(base)
        for name in vars(base).get("__annotations__", ()) if is_undecorated else ():
            if typing.get_origin(hints[name]) is not typing.ClassVar:
                raise ValueError(
                    f"{prefix}{name} is declared, but is no field: decorate the class "
                    f"{base.__name__} with @dataclasses.dataclass."
                )
    for name in names:
        value, path = getattr(config, name), prefix + name
        if dataclasses.is_dataclass(hints[name]):  # config.json does not name a class for each.
            allowed = f"of type {hints[name].__name__}"
            require(type(value) is hints[name], path, value, allowed)
            _check_declarations(value, f"{path}.")
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            _check_declarations(value, f"{path}.")  # The config of an agent may be of any class.
            make_config(type(value), _values(value), f"{path}.")
        else:
            _check_value(value, path)


def _values(config: Any) -> dict[str, Any]:
    """Return the values of the fields that a config is made with."""
    values = dataclasses.asdict(config)
    return {field.name: values[field.name] for field in dataclasses.fields(config) if field.init}


def _check_value(value: Any, path: str) -> None:
    for number in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(number, int):
            require(abs(number) <= _MAX_INT, path, value, "a whole number of at most 64 bits")
        elif isinstance(number, float):
            is_float32 = number == 0 or bool(_FLOAT32.tiny <= abs(number) <= _FLOAT32.max)
            require(is_float32, path, value, "a finite float32 number")
    allowed = "of numbers, strings, tuples, lists and dicts, which config.json can hold"
    require(can_be_kept(value), path, value, allowed)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(tuple[kind], config=_STRICT)  # A dataclass alone takes no settings.


def _may_be_none(kind: Any, location: Sequence[int | str]) -> bool:
    """Return whether the field of a dataclass in which pydantic found an error may be None."""
    for name in location:
        if dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind).get(str(name))
        elif isinstance(name, int):  # An element; pydantic names the members of unions, too.
            return False
    return is_union(kind) and type(None) in typing.get_args(kind)


def _describe(error: Any, values: Any, path: str, also_allowed: str) -> str:
    """Return an error of pydantic as a sentence that names the field, its value and the allowed."""
    for part in error["loc"][1:]:
        with contextlib.suppress(LookupError, TypeError):  # It names the members of unions, too.
            values = values[part]
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
    path = path.lstrip(".")
    if error["type"] == "missing":
        return f"{path}.{error['loc'][-1]} is missing.".lstrip(".")
    if error["type"] == "unexpected_keyword_argument":
        return f"{path} is no field."
    allowed = re.sub(r"^\w+ should ", "it has to ", error["msg"].partition(" after validation")[0])
    return f"{path} is {values!r}; {allowed}{also_allowed}."


def _copy_dicts(values: Mapping[str, Any], config: Any) -> None:
    """Copy the dicts, whose tuples are lists in JSON, into a config that was made from values."""
    for name, value in values.items():
        field = getattr(config, name)
        if dataclasses.is_dataclass(field):
            _copy_dicts(value, field)
        elif isinstance(value, dict):
            setattr(config, name, value)


def _check_rules(config: Any, prefix: str) -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            _check_rules(value, f"{prefix}{field.name}.")
    for name, is_allowed, allowed in config.rules() if hasattr(config, "rules") else ():
        require(is_allowed, prefix + name, getattr(config, name), allowed)
