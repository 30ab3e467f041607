"""Tests of the fields of a config: their paths, and the texts of their values."""

import dataclasses
from typing import Any, Literal

import pytest
from pydantic import PositiveFloat, PositiveInt

from apex_agents.fields import (
    RANGE,
    change_fields,
    closest_field,
    field_paths,
    get_field,
    split_values,
)
from apex_agents.presets import load_config


@dataclasses.dataclass
class Typed:
    """A field of each type, all of which may be None."""

    whole: PositiveInt | None = 1
    number: PositiveFloat | None = 1.0
    switch: bool | None = True
    name: str | None = ""
    choice: Literal["1", "2"] | None = "1"
    sizes: tuple[int, ...] | None = (1,)
    content: Any = None


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("whole", "1e6", 1_000_000),
        ("whole", "1_000", 1000),
        ("whole", "16.0", 16),
        ("whole", "-3", -3),
        ("whole", "1.5", 1.5),  # That no value of a type stands for is found by its check.
        ("whole", "five", "five"),
        ("number", "1e-3", 0.001),
        ("number", "1", 1.0),
        ("number", "nan", "nan"),
        ("switch", "false", False),
        ("switch", "True", True),
        ("switch", "0", False),
        ("switch", "abc", "abc"),
        ("name", "7", "7"),
        ("name", "true", "true"),
        ("choice", "2", "2"),
        ("sizes", "(32, 16)", (32, 16)),
        ("sizes", "[32, 16]", [32, 16]),
        ("sizes", "64,64", (64, 64)),
        ("sizes", "64", (64,)),
        ("content", "[1, null]", [1, None]),
        *[(name, "None", None) for name in ("whole", "number", "switch", "name", "sizes")],
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(field, text, value):
    config = change_fields(Typed(), [(field, text)])
    assert getattr(config, field) == value
    assert type(getattr(config, field)) is type(value)


KWARGS = "environment.kwargs"
CONFIG = load_config("apex_dqn_frozenlake")
CONFIG.environment.kwargs = {"is_slippery": True, "of": {"a": [1]}}


def read(*values: tuple[str, Any]) -> dict[str, Any]:
    """Return the dict of a config with flags that have these paths and texts."""
    config = change_fields(CONFIG, values)
    config.validate()
    return config.environment.kwargs


@pytest.mark.parametrize(
    "text",
    [
        '{"a": true, "b": null, "c": [1, 2.5], "d": "x", "e": false}',
        "{'a': True, 'b': None, 'c': [1, 2.5], 'd': 'x', 'e': False}",
        "{'a': true, 'b': null, 'c': [1, 2.5], 'd': \"x\", 'e': False,}",
    ],
)
def test_a_dict_is_written_as_in_json_or_python(text):
    assert read((KWARGS, text)) == {"a": True, "b": None, "c": [1, 2.5], "d": "x", "e": False}


def test_strings_of_json_are_those_of_json():
    assert read((KWARGS, r'{"a": "\/\ud83d\ude00"}')) == {"a": "/\U0001f600"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("false", False),
        ("False", False),
        ("null", None),
        ("7", 7),
        ("1e-3", 0.001),
        ("8x8", "8x8"),
        ("'7'", "7"),
        ("", ""),
        ("a=b", "a=b"),
        ("(84, 84)", (84, 84)),
        ("[(1, 2), {'x': (3,)}]", [(1, 2), {"x": (3,)}]),
    ],
)
def test_an_entry_has_the_type_that_its_text_has(text, value):
    kwargs = read((f"{KWARGS}.is_slippery", text))
    assert kwargs == {"is_slippery": value, "of": {"a": [1]}}
    assert type(kwargs["is_slippery"]) is type(value)
    assert CONFIG.environment.kwargs["is_slippery"] is True  # The config given stays as it is.


def test_entries_change_the_dict_that_comes_before_them():
    a, whole = (f"{KWARGS}.a", "1"), (KWARGS, "{'b': 2}")
    inner = [(f"{KWARGS}.of.a", "null"), (f"{KWARGS}.of.deep.er", "1")]
    assert read(a) == {**CONFIG.environment.kwargs, "a": 1}
    assert read(whole, a) == {"b": 2, "a": 1}
    assert read(a, whole) == {"b": 2}
    assert read(*inner) == {"is_slippery": True, "of": {"a": None, "deep": {"er": 1}}}


def test_an_entry_of_what_is_no_dict_is_an_error():
    with pytest.raises(ValueError, match="is_slippery is True"):
        read((f"{KWARGS}.is_slippery.a", "1"))


def test_entries_are_fields_of_a_study():
    config = change_fields(CONFIG, [(f"{KWARGS}.of.a", (1, 2))])
    assert get_field(config, f"{KWARGS}.of.a") == (1, 2)
    with pytest.raises(ValueError, match=r"run\.seed\.a is no field"):
        change_fields(CONFIG, [("run.seed.a", 1)])


@dataclasses.dataclass
class Outer:
    """A config with another one inside."""

    first: int = 1
    inner: Typed = dataclasses.field(default_factory=Typed)
    last: int = 2


def test_paths_of_fields():
    paths = field_paths(Outer(), "a.")
    assert (paths[0], paths[1], paths[-1]) == ("a.first", "a.inner.whole", "a.last")
    assert len(paths) == 9
    assert get_field(Outer(), "inner.sizes") == (1,)


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
    ("text", "values"),
    [
        ("0.001,0.004", ["0.001", "0.004"]),
        ("pong, breakout", ["pong", "breakout"]),
        ("(64,64),(128,)", ["(64,64)", "(128,)"]),
        ("[8,[1,2]],{'a': 1, 'b': 2}", ["[8,[1,2]]", "{'a': 1, 'b': 2}"]),
        ("'a=1,b=2'", ["a=1,b=2"]),
        ("\"a,b\",'c'", ["a,b", "c"]),
        ("'(',b", ["(", "b"]),
        (")1,2", [")1", "2"]),
        ("", [""]),
        ("1,", ["1", ""]),
    ],
)
def test_values_are_separated_by_commas_outside_of_brackets_and_quotes(text, values):
    assert split_values(text) == values


@pytest.mark.parametrize(
    ("text", "is_range"),
    [
        ("0:1", True),
        ("log:1e-5:1e-2", True),
        ("-1:+2.5", True),
        ("1_000:1e6", True),
        ("humanoid:walk", False),
        ("my_envs:Corridor-v0", False),
        ("1:2:3", False),
        ("lin:1:2", False),
    ],
)
def test_ranges(text, is_range):
    assert bool(RANGE.fullmatch(text)) is is_range
