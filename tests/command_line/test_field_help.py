"""Tests of the list of fields that --help shows."""

import dataclasses

import pytest

from apex_agents.command_line.field_help import describe_fields, read_meanings
from apex_agents.presets import load_config
from apex_agents.validation import field_paths


@dataclasses.dataclass
class Inner:
    """A config.

    Attributes:
      a, b: meaning of
        two fields: both.
      c: meaning of a third one.
    """

    a: int = 1
    b: int = 2
    c: float = 0.5


@dataclasses.dataclass
class Outer:
    """A config without a word on its fields."""

    inner: Inner = dataclasses.field(default_factory=Inner)


def test_fields_have_their_values_and_meanings():
    assert list(describe_fields(Outer(), "outer"))[1:] == [
        "  --config.inner.a=1",
        "    meaning of two fields: both.",
        "  --config.inner.b=2",
        "    meaning of two fields: both.",
        "  --config.inner.c=0.5",
        "    meaning of a third one.",
    ]
    assert read_meanings(Outer) == {}


@pytest.mark.parametrize("name", ["apex_dqn_atari", "apex_dpg_control", "a2c_cartpole"])
def test_every_field_has_a_meaning(name):
    config = load_config(name)
    lines = list(describe_fields(config, name))[1:]
    fields = [line.strip().partition("=")[0].removeprefix("--config.") for line in lines[::2]]
    assert fields == field_paths(config)
    assert [field for field, meaning in zip(fields, lines[1::2], strict=True) if not meaning] == []
