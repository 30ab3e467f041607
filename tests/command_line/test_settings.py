"""Tests of the settings that a command line asks for."""

import sys

import pytest

from apex_agents.command_line.settings import Settings, run_with_settings


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


def test_an_entry_counts_as_its_dict():
    settings = parse("--config.environment.kwargs.a='7'", "--config=lake", has_variants=False)
    assert settings.overrides == {"environment.kwargs": {"is_slippery": False, "a": "7"}}
    assert settings.given == ["config.environment.kwargs.a", "config"]


def test_fields_with_several_values():
    settings = parse("--config.run.seed=1,2", "--config.agent.n_step='5'", "--config.run.seed=3")
    assert (settings.overrides, settings.variants) == ({"agent.n_step": 5, "run.seed": 3}, {})
    settings = parse("--config.run.seed=1,2", "--config.run.seed=3,4", "--config.agent.n_step=1:5")
    assert settings.variants == {"run.seed": ["3", "4"], "agent.n_step": ["1:5"]}
    assert settings.overrides == {}
