"""Tests of the checks of configs, on configs of the tests' own."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import pickle
from typing import Any, ClassVar, List, Literal  # noqa: UP035

import pytest

from apex_agents.validation import (
    bounded,
    checked,
    closest,
    closest_field,
    field_paths,
    get_field,
    positive,
    require,
    require_fields,
    require_types,
    unknown_name,
)


@dataclasses.dataclass
class Sizes:
    small: int = bounded(1, 0, 10)
    large: float | None = positive(None)
    many: tuple[int, ...] = (1, 2)


@dataclasses.dataclass
class Range:
    least: int = bounded(1, 0)
    most: int = 2

    def validate(self, prefix: str) -> None:
        require_fields(self, prefix)
        require(self.least <= self.most, f"{prefix}least", self.least, f"at most {self.most}")


@dataclasses.dataclass
class Box:
    colour: str = checked("red", ("red", "blue").__contains__, "red or blue")
    is_open: bool = True
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    range: Range = dataclasses.field(default_factory=Range)
    content: Any = None


INT, FLOAT = "a whole number of at most 64 bits", "a finite float32 number"

# Field, value, and what is allowed instead.
MESSAGES = [
    ("colour", "green", "red or blue"),
    ("colour", None, "a string"),
    ("is_open", 1, "True or False"),
    ("sizes", None, "of type Sizes"),
    ("sizes", Sizes, "of type Sizes"),
    ("sizes.small", -1, "between 0 and 10"),
    ("sizes.small", 11, "between 0 and 10"),
    ("sizes.small", 1.0, INT),
    ("sizes.large", 0.0, "greater than 0"),
    ("sizes.large", math.inf, f"{FLOAT} or None"),
    ("sizes.many", [1.0], "a tuple of whole numbers"),
    ("range.least", -1, "at least 0"),
    ("range.least", 3, "at most 2"),
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
        require_fields(box, "box.")
    assert str(error.value) == f"box.{field} is {value!r}; it has to be {allowed}."


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("colour", "blue"),
        ("sizes.small", 0),
        ("sizes.small", 10),
        ("sizes.large", 1e-9),
        ("sizes.large", 7),
        ("sizes.many", []),
        ("range.least", 0),
        ("range.least", 2),
        ("content", math.nan),
    ],
)
def test_allowed_values(field, value):
    box = Box()
    set_field(box, field, value)
    require_fields(box, "box.")


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
    # Of classes of a user's.
    tuple[float, ...]: [0.9, ("a",), (math.nan,)],
    list[str]: ["a", [1]],
    List: ["a", 1],  # noqa: UP006  # As users write it.
    Literal["a", "b"]: ["c", 1, None],
    dict[str, float]: [0.5, {"a": object()}],
    tuple[str, float]: [("a",), (0.5, "a"), ["a", 0.5, 1]],
    Literal["a"] | None: ["b"],
    Any: [object(), pathlib.Path("a"), {1, 2}],
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
    @dataclasses.dataclass
    class Config:
        field: Any

    Config.__annotations__["field"] = kind
    for value in RIGHT_TYPES[kind]:
        require_types(Config(value), "")
    for value in WRONG_TYPES[kind]:
        with pytest.raises(ValueError, match=r"^field is "):
            require_types(Config(value), "")


@dataclasses.dataclass
class MoreSizes(Sizes):
    """Has a constant, which is no field."""

    limit: ClassVar[int] = 3


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
    require_fields(MoreSizes(), "a.")
    require_fields(Mixed(), "a.")
    require_fields(OnlyConstant(), "a.")
    with pytest.raises(ValueError, match=r"a.alpha is declared.*NoDataclass with @dataclasses"):
        require_fields(NoDataclass(), "a.")


@dataclasses.dataclass
class Holder:
    """Has a config within it."""

    sizes: Sizes = dataclasses.field(default_factory=Sizes)


def test_a_config_of_another_class_than_declared_is_refused():
    require_fields(Holder(), "")
    with pytest.raises(ValueError, match=r"sizes is MoreSizes.*it has to be of type Sizes"):
        require_fields(Holder(MoreSizes()), "")


def test_an_attribute_that_is_no_field_is_refused():
    class Named(Sizes):
        @functools.cached_property
        def total(self) -> int:
            return 3

    sizes = Named()
    sizes._cache, _ = 1, sizes.total
    require_fields(sizes, "a.")
    sizes.mnay = (4,)
    with pytest.raises(ValueError, match=r"a.mnay is set, but is no field; the closest: many"):
        require_fields(sizes, "a.")


def test_checked_fields_are_plain_fields():
    assert (Sizes().small, Sizes.small, Sizes(3).small) == (1, 1, 3)
    assert pickle.loads(pickle.dumps(Sizes(3))) == Sizes(3)


def test_field_paths():
    assert field_paths(Box(), "box.") == [
        *("box.colour", "box.is_open", "box.sizes.small", "box.sizes.large", "box.sizes.many"),
        *("box.range.least", "box.range.most", "box.content"),
    ]


def test_get_field():
    assert get_field(Box(), "sizes.many") == (1, 2)


FIELDS = [
    "agent.learning_rate",
    "agent.batch_size",
    "agent.replay.max_size",
    "run.seed",
    "run.limit",
]


@pytest.mark.parametrize(
    ("path", "closest"),
    [
        ("agent.lr", "agent.learning_rate"),
        ("run.lr", "agent.learning_rate"),
        ("agent.bs", "agent.batch_size"),
        ("agnet.batchsize", "agent.batch_size"),
        ("agent.max_size", "agent.replay.max_size"),
        ("seed", "run.seed"),
        ("run", "run.seed"),
    ],
)
def test_closest_field(path, closest):
    assert closest_field(path, FIELDS) == closest


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
