"""Tests of fields with several values."""

import pytest

from apex_agents.command_line.variants import split_values, take_variants


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


def test_fields_with_several_values_are_taken_from_the_command_line():
    argv = ["study", "--seeds=1,2", "--config.a=1,2", "-config.b.c=x", "--config.d='1,2'"]
    assert take_variants(argv) == (
        ["study", "--seeds=1,2", "--config.b.c=x", "--config.d=1,2"],
        {"a": ["1", "2"]},
    )


def test_the_last_one_counts():
    assert take_variants(["--config.a=1,2", "--config.a=3"]) == (["--config.a=3"], {})
    assert take_variants(["--config.a=1,2", "--config.a=3,4"]) == ([], {"a": ["3", "4"]})


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
    assert take_variants([f"--config.a={text}"])[1] == ({"a": [text]} if is_range else {})
