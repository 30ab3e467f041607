"""Tests of the warnings of fields that nothing reads."""

import pytest
from refusals import assert_refused

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.command_line.idle_fields import READ_WITH, find_idle_fields
from apex_agents.command_line.settings import change_fields
from apex_agents.config import ExperimentConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.validation import field_paths, get_field

CONFIGS = [ExperimentConfig(agent()) for agent in (ApexDQNConfig, ApexDPGConfig, A2CConfig)]
ROWS = [
    (config, path, other, values)
    for config in CONFIGS
    for path, (other, values) in READ_WITH.items()
    if {path, other} <= set(field_paths(config))
]


@pytest.mark.parametrize(("config", "path", "other", "values"), ROWS)
def test_a_field_is_idle_unless_another_one_has_one_of_some_values(config, path, other, values):
    assert {row[1] for row in ROWS} == {path for path in READ_WITH if path[-1] != "*"}
    for value in values:
        changed = change_fields(config, {other: value})
        changed.validate()
        assert list(find_idle_fields(changed, [path])) == []
    default = get_field(config, other)
    expected = (
        [] if default in values else [f"--config.{path} has no effect: {other} is {default!r}"]
    )
    found = find_idle_fields(config, [path])
    assert [message.partition(", not")[0] for message in found] == expected
    assert list(find_idle_fields(config, [path], [other])) == []


def test_a_function_of_the_users_may_read_anything():
    config = change_fields(CONFIGS[0], {"agent.torso": "my_nets:make_torso"})
    assert list(find_idle_fields(config, ["agent.conv_channels", "agent.mlp_hidden_sizes"])) == []


def test_fields_of_atari_are_for_atari():
    path = "environment.atari.sticky_action_probability"
    assert list(find_idle_fields(CONFIGS[0], [path])) == []
    config = change_fields(CONFIGS[0], {"environment.suite": "gymnasium"})
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
    assert_refused(run_command_line(flags, tmp_path), ["agent.adam_epsilon is nan"])
