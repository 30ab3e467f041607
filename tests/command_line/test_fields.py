"""Tests of fields on a command line: other names, warnings and help."""

import dataclasses
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveFloat, PositiveInt
from refusals import assert_refused

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.command_line.fields import (
    describe_fields,
    find_idle_fields,
    read_meanings,
    suggest_flag,
)
from apex_agents.config import ExperimentConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.fields import change_fields, field_paths, get_field, read_conditions
from apex_agents.presets import load_config

CONFIG = load_config("apex_dqn_frozenlake")


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("env", "environment.task"),
        ("env-id", "environment.task"),
        ("env_config", "environment.kwargs"),
        ("buffer_size", "agent.replay.max_size"),
        ("learning_starts", "agent.replay.min_size"),
        ("num_envs", "run.num_envs_per_actor"),
        ("train_batch_size", "agent.batch_size"),
        ("max_grad_norm", "agent.max_gradient_norm"),
        ("target_network_frequency", "agent.target_update_period"),
        ("seed", "run.seed"),
        ("batchsize", "agent.batch_size"),
        ("num_actor", "run.num_actors"),
        ("lr", "agent.learning_rate"),
        ("total_timesteps", "run.max_actor_steps"),
    ],
)
def test_flags_of_other_libraries_are_fields(flag, field):
    assert suggest_flag(CONFIG, flag) == f"the closest is --config.{field}"
    get_field(CONFIG, field)


def test_a_flag_that_resembles_none_has_no_suggestion():
    assert suggest_flag(CONFIG, "wandb_entity") is None


CONFIGS = [ExperimentConfig(agent()) for agent in (ApexDQNConfig, ApexDPGConfig, A2CConfig)]
ROWS = [
    (config, path, other, values)
    for config in CONFIGS
    for path, (other, values) in read_conditions(config).items()
    if not path.startswith("environment.atari.")
]


def test_a_field_is_idle_unless_another_one_has_one_of_some_values():
    assert len({path for _, path, *_ in ROWS}) == 20
    for config, path, other, values in ROWS:
        for value in values:
            changed = change_fields(config, [(other, value)])
            changed.validate()
            assert list(find_idle_fields(changed, [path])) == []
        default = get_field(config, other)
        idle = f"--config.{path} has no effect: {other} is {default!r}"
        found = [text.partition(", not")[0] for text in find_idle_fields(config, [path])]
        assert found == ([] if default in values else [idle])
        assert list(find_idle_fields(config, [path], [other])) == []


def test_a_function_of_the_users_may_read_anything():
    config = change_fields(CONFIGS[0], [("agent.torso", "my_nets:make_torso")])
    assert list(find_idle_fields(config, ["agent.conv_channels", "agent.mlp_hidden_sizes"])) == []


def test_fields_of_atari_are_for_atari():
    path = "environment.atari.sticky_action_probability"
    assert list(find_idle_fields(CONFIGS[0], [path])) == []
    config = change_fields(CONFIGS[0], [("environment.suite", "gymnasium")])
    assert list(find_idle_fields(config, [path])) == [
        f"--config.{path} has no effect: environment.suite is 'gymnasium', not 'atari'."
    ]


def test_the_command_warns_and_goes_on(run_command_line, tmp_path):
    flags = ["--config=apex_dqn_catch", "--config.agent.adam_epsilon=1e-5"]
    exit_code, _, stderr = run_command_line(flags, tmp_path)
    assert exit_code == 0
    assert stderr == (
        "warning: --config.agent.adam_epsilon has no effect: agent.optimizer is 'rmsprop', "
        "not 'adam'.\n"
    )


def test_of_a_value_that_is_refused_only_that_is_said(run_command_line, tmp_path):
    flags = ["--config=apex_dqn_catch", "--config.agent.adam_epsilon=nan"]
    assert_refused(run_command_line(flags, tmp_path), ["agent.adam_epsilon is 'nan'"])


@dataclasses.dataclass
class Inner:
    """A config.

    Attributes:
      a, b: meaning of
        two fields: both.
      c: meaning of a third one.
    """

    a: Annotated[int, Field(ge=1, lt=9)] = 1
    b: tuple[PositiveInt, ...] = (2,)
    c: Literal["x", "y"] | PositiveFloat | None = 0.5


@dataclasses.dataclass
class Outer:
    """A config without a word on its fields."""

    inner: Inner = dataclasses.field(default_factory=Inner)


def test_fields_have_their_values_and_meanings():
    assert list(describe_fields(Outer())) == [
        "  --config.inner.a=1  (int >= 1, < 9)",
        "    meaning of two fields: both.",
        "  --config.inner.b=(2,)  (tuple of int > 0)",
        "    meaning of two fields: both.",
        "  --config.inner.c=0.5  ('x' or 'y' or float > 0 or None)",
        "    meaning of a third one.",
    ]
    assert read_meanings(Outer) == {}


@pytest.mark.parametrize("name", ["apex_dqn_atari", "apex_dpg_control", "a2c_cartpole"])
def test_every_field_has_a_meaning(name):
    config = load_config(name)
    lines = list(describe_fields(config))
    fields = [line.strip().partition("=")[0].removeprefix("--config.") for line in lines[::2]]
    assert fields == field_paths(config)
    assert [field for field, meaning in zip(fields, lines[1::2], strict=True) if not meaning] == []
