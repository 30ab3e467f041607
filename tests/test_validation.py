"""Tests of the checks of configs, on configs of the tests' own."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import pickle
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, List, Literal  # noqa: UP035

import pytest
from pydantic import Field, NonNegativeInt, PositiveFloat

from apex_agents.torso_config import LayerSizes
from apex_agents.validation import (
    Rule,
    check_config,
    closest,
    make_config,
    matching,
    name_or_function,
    unknown_name,
)


@dataclasses.dataclass
class Sizes:
    small: Annotated[int, Field(ge=0, le=10)] = 1
    large: PositiveFloat | None = None
    many: LayerSizes = (1, 2)


@dataclasses.dataclass
class MoreSizes(Sizes):
    """Has a constant, which is no field."""

    limit: ClassVar[int] = 3


@dataclasses.dataclass
class Range:
    least: NonNegativeInt = 1
    most: int = 2

    def rules(self) -> Iterator[Rule]:
        yield "least", self.least <= self.most, f"at most {self.most}"


@dataclasses.dataclass
class Box:
    colour: Literal["red", "blue"] = "red"
    size: Annotated[str, matching(str.islower, "in lower case")] = "big"
    maker: Annotated[str, name_or_function("any")] = "any"
    is_open: bool = True
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    range: Range = dataclasses.field(default_factory=Range)
    names: tuple[str, ...] | None = None
    content: Any = None


NO_FUNCTIONS = ("other", "", "nets:", ":f", "nets:f:g", "a-b:f")

# Field, value, and the allowed values: each kind of bound once.
MESSAGES = [
    ("colour", "green", "be 'red' or 'blue'"),
    ("colour", None, "be 'red' or 'blue'"),
    ("size", "BIG", "be in lower case"),
    ("size", 3, "be a valid string"),
    *[("maker", name, "be 'any' or 'module:function'") for name in NO_FUNCTIONS],
    ("is_open", 1, "be a valid boolean"),
    ("sizes", None, "be of type Sizes"),
    ("sizes", Sizes, "be of type Sizes"),
    ("sizes", MoreSizes(), "be of type Sizes"),
    ("sizes.small", -1, "be greater than or equal to 0"),
    ("sizes.small", 11, "be less than or equal to 10"),
    ("sizes.small", 1.0, "be a valid integer"),
    ("sizes.large", 0.0, "be greater than 0 or None"),
    ("names", "x", "be a valid array or None"),
    ("sizes.large", math.inf, "be a finite float32 number"),
    ("sizes.many", (1,) * 17, "have at most 16 items"),
    ("range.least", -1, "be greater than or equal to 0"),
    ("range.least", 3, "be at most 2"),
]


def set_field(config: Any, path: str, value: Any) -> None:
    *groups, name = path.split(".")
    for group in groups:
        config = getattr(config, group)
    setattr(config, name, value)


@pytest.mark.parametrize(("field", "value", "allowed"), MESSAGES)
def test_message_names_field_value_and_what_is_allowed(field, value, allowed):
    box = Box()
    set_field(box, field, value)
    with pytest.raises(ValueError) as error:
        check_config(box, "box.")
    assert str(error.value) == f"box.{field} is {value!r}; it has to {allowed}."


def test_message_names_the_element_of_a_tuple():
    with pytest.raises(ValueError) as error:
        check_config(Sizes(many=(3, 0)))
    assert str(error.value) == "many[1] is 0; it has to be greater than or equal to 1."
    with pytest.raises(ValueError) as error:
        check_config(Box(names=("a", 0)))
    assert str(error.value) == "names[1] is 0; it has to be a valid string."


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("colour", "blue"),
        ("sizes.small", 0),
        ("sizes.small", 10),
        ("sizes.large", 1e-9),
        ("sizes.large", 7),
        ("sizes.many", []),
        ("sizes.many", [64, 64]),
        ("maker", "my.nets:f"),
        ("range.least", 0),
        ("range.least", 2),
        ("content", {"a": ({"b": (1,)}, [])}),
    ],
)
def test_allowed_values(field, value):
    box = Box()
    set_field(box, field, value)
    check_config(box, "box.")


# What no field of a type can hold.
WRONG_TYPES: dict[Any, list[Any]] = {
    int: [1.0, math.nan, True, False, "1", "", (1,), b"1", 2**63, -(2**70), None],
    # Infinite or 0 as float32; whole numbers of more than 64 bits stop TensorFlow.
    float: [math.nan, math.inf, -math.inf, 1e39, -1e300, 1e-300, True, "1", (1.0,), 1j, 2**63],
    bool: [0, 1, 0.0, "true", "", (True,), None],
    str: [0, True, 1.5, ("a",), ["fifo"], b"fifo", {}, None],
    tuple[int, ...]: [
        *("", "64", b"64", {}, 64),
        *((1.0,), ("64",), (True,), (None,), (2**63,), ((1,),)),
    ],
    # User-defined classes have fields of these types.
    tuple[float, ...]: [0.9, ("a",), (math.nan,)],
    list[str]: ["a", [1]],
    List: ["a", 1],  # noqa: UP006  # As users write it.
    Literal["a", "b"]: ["c", 1, None],
    dict[str, float]: [0.5, {"a": object()}],
    tuple[str, float]: [("a",), (0.5, "a"), ["a", 0.5, 1]],
    Literal["a"] | None: ["b"],
    Any: [object(), pathlib.Path("a"), {1, 2}, {1: 2}, math.nan, {"__tuple__": [1]}],
}
RIGHT_TYPES: dict[Any, list[Any]] = {
    int: [0, -1, 2**63 - 1],
    float: [0, 0.0, -1.5, 3e38, 2],
    bool: [True, False],
    str: ["", "a"],
    tuple[int, ...]: [(), (1,), [64, 64]],
    tuple[float, ...]: [(), (0.9, 1)],
    list[str]: [[], ["a"]],
    List: [[], ["a", 1]],  # noqa: UP006  # As users write it.
    Literal["a", "b"]: ["a"],
    dict[str, float]: [{}, {"a": 0.5}],
    tuple[str, float]: [("a", 0.5), ["a", 1]],
    Literal["a"] | None: ["a", None],
    Any: [None, [1], "a"],
}


@pytest.mark.parametrize("kind", WRONG_TYPES, ids=str)
def test_types(kind):
    make = dataclasses.make_dataclass("Config", [("field", kind)])
    for value in RIGHT_TYPES[kind]:
        check_config(make(value))
    for value in WRONG_TYPES[kind]:
        with pytest.raises(ValueError, match=r"^field\b"):
            check_config(make(value))


class Mixin:
    """No config, whatever it declares."""

    _cache: dict


@dataclasses.dataclass
class Mixed(Mixin, Sizes):
    """Has no field of the mixin's."""


class OnlyConstant(Sizes):
    """Needs no decorator: what it declares would be no field with one."""

    limit: ClassVar[int] = 4


class NoDataclass(MoreSizes):
    """Lacks the decorator that makes a field of what it declares."""

    alpha: float = 0.1


def test_a_class_that_lacks_the_decorator_is_refused():
    check_config(MoreSizes(), "a.")
    check_config(Mixed(), "a.")
    check_config(OnlyConstant(), "a.")
    with pytest.raises(ValueError, match=r"a.alpha is declared.*NoDataclass with @dataclasses"):
        check_config(NoDataclass(), "a.")


def test_an_attribute_that_is_no_field_is_refused():
    class Named(Sizes):
        @functools.cached_property
        def total(self) -> int:
            return 3

    sizes = Named()
    sizes._cache, _ = 1, sizes.total
    check_config(sizes, "a.")
    sizes.mnay = (4,)
    with pytest.raises(ValueError, match=r"a.mnay is set, but is no field; the closest: many"):
        check_config(sizes, "a.")


def test_checked_fields_are_plain_fields():
    assert (Sizes().small, Sizes.small, Sizes(3).small) == (1, 1, 3)
    assert pickle.loads(pickle.dumps(Sizes(3))) == Sizes(3)


def test_a_config_is_made_from_its_values():
    values = {"sizes": {"many": [3], "large": 2}, "content": {"a": ((1,), [2])}}
    box = make_config(Box, values)
    assert box == Box(sizes=Sizes(many=(3,), large=2.0), content={"a": ((1,), [2])})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"color": "red"}, "box.color is no field."),
        ({"sizes": {"small": "1"}}, "box.sizes.small is '1'; it has to be a valid integer."),
        ({"sizes": 3}, "box.sizes is 3; it has to be an object."),
    ],
)
def test_a_config_is_not_made_from_other_values(values, message):
    with pytest.raises(ValueError) as error:
        make_config(Box, values, "box.")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "closest"), [("pnog", "pong, ping"), ("zaxon", "zaxxon"), ("x", "none")]
)
def test_unknown_name(name, closest):
    error = unknown_name("game", name, {"pong", "ping", "zaxxon"})
    assert str(error) == f"unknown game {name!r}; closest: {closest}; allowed: ping, pong, zaxxon"


def test_unknown_name_among_many():
    names = [f"game{i:02}" for i in range(21)]
    message = str(unknown_name("game", "game7", names))
    assert message.endswith("; allowed: one of 21 names")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pang", "pong"), ("breakot", "breakout"), ("x", "none")],
)
def test_closest_names_are_of_the_first_list_that_has_some(name, expected):
    assert closest(name, ["pong"], ["breakout", "pang2"]) == expected


@dataclasses.dataclass
class Computed(Sizes):
    half: float = dataclasses.field(init=False, default=0.5)


def test_a_field_that_is_computed_is_checked_and_read_with_its_config():
    config = Computed(small=3)
    check_config(config)
    assert make_config(Computed, dataclasses.asdict(config)) == config
