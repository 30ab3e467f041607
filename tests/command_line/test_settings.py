"""Tests of the settings that a command line asks for."""

import sys

import pytest

from apex_agents.command_line.settings import (
    RANGE,
    Settings,
    find_config,
    run_with_settings,
    split_values,
)


def parse(*argv: str, has_variants: bool = True) -> Settings:
    """Return the settings of a command line of apex-dqn."""
    found: list[Settings] = []

    def command(settings: Settings) -> None:
        found.append(settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["command", *argv])
        run_with_settings(command, "apex_dqn_catch", "apex_dqn", has_variants=has_variants)
    return found[0]


def test_flags_of_fields_have_their_values_behind_or_after_them():
    settings = parse(
        *("--config=cartpole", "--config.run.seed", "3", "-config.agent.n_step=2"),
        *("--config.agent.replay.eviction_exponent", "-0.5", "--config.agent.bfloat16"),
        *("--noconfig.environment.atari.clip_rewards", "study"),
    )
    assert settings.path.stem == "apex_dqn_cartpole"
    assert settings.arguments == ["study"]
    assert settings.overrides == {
        "run.seed": 3,
        "agent.n_step": 2,
        "agent.replay.eviction_exponent": -0.5,
        "agent.bfloat16": True,
        "environment.atari.clip_rewards": False,
    }
    assert settings.config.agent.replay.eviction_exponent == -0.5


def test_settings_are_handed_to_another_command():
    settings = parse(
        "--config.environment.kwargs.a='7'",
        "--config.run.seed=3",
        "--config=lake",
        has_variants=False,
    )
    assert settings.to_flags({"run.seed": 4}) == [
        f"--config={settings.path}",
        "--config.environment.kwargs={'is_slippery': False, 'a': '7'}",
        "--config.run.seed=4",
    ]


def test_fields_with_several_values():
    settings = parse("--config.run.seed=1,2", "--config.agent.n_step='5'", "--config.run.seed=3")
    assert (settings.overrides, settings.variants) == ({"agent.n_step": 5, "run.seed": 3}, {})
    settings = parse("--config.run.seed=1,2", "--config.run.seed=3,4", "--config.agent.n_step=1:5")
    assert settings.variants == {"run.seed": ["3", "4"], "agent.n_step": ["1:5"]}
    assert settings.overrides == {}


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


@pytest.mark.parametrize(
    ("part", "agent", "name"),
    [
        ("lunar", "apex_dqn", "apex_dqn_lunarlander"),
        ("lunar", "", "apex_dqn_lunarlander"),
        ("cart", "a2c", "a2c_cartpole"),
        ("control", "apex_dpg", "apex_dpg_control"),  # A word counts before parts of words.
    ],
)
def test_settings_are_found_by_a_part_of_their_name(part, agent, name):
    assert find_config(part, agent).stem == name
