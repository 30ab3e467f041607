"""Tests of the settings that come with the package, as programs load them."""

import copy
import dataclasses
import functools
import pickle

import gymnasium
import pytest

import apex_agents
from apex_agents.environments import EnvironmentConfig
from apex_agents.experiment import make_experiment
from apex_agents.fields import field_paths, get_field
from apex_agents.presets import find_config, load_config, load_config_file, preset_names


def test_a_program_gets_settings_of_its_own():
    first, second = (apex_agents.load_config("apex_dqn_cartpole") for _ in range(2))
    assert first.environment.task == "CartPole-v1"
    first.agent.replay.min_size = 7
    assert second.agent.replay.min_size != 7


@pytest.mark.parametrize("name", preset_names())
def test_a_target_return_is_one_of_the_task_of_the_settings(name):
    config = load_config(name)
    target = config.run.target_return
    assert target is None or target.task == config.environment.task


def replace_environment(config: apex_agents.ExperimentConfig) -> apex_agents.ExperimentConfig:
    return dataclasses.replace(config, environment=EnvironmentConfig("toy", "catch"))


def change_task(config: apex_agents.ExperimentConfig) -> apex_agents.ExperimentConfig:
    config.environment.task = "Acrobot-v1"
    return config


def pickle_and_read(config):
    return pickle.loads(pickle.dumps(config))


@pytest.mark.parametrize("change", [replace_environment, change_task])
@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy, pickle_and_read])
def test_a_target_return_of_another_task_is_left_out(change, copy_of):
    config = change(copy_of(load_config("apex_dqn_cartpole")))
    experiment = make_experiment(config)
    assert experiment.run.target_return is experiment.config.run.target_return is None
    assert ["475" in note for note in experiment.notes] == [True]
    # One that the user has given holds for any task, the same number too.
    for target in (475.0, 0.0):
        config.run.target_return = target
        experiment = make_experiment(config)
        assert (experiment.run.target_return, experiment.notes) == (target, [])


def test_a_function_in_place_of_the_task_has_no_target_of_the_task():
    config = load_config("apex_dqn_cartpole")
    function = functools.partial(gymnasium.make, "CartPole-v1")
    assert make_experiment(config, environment_fn=function).run.target_return is None
    assert make_experiment(config).run.target_return == 475


@pytest.mark.parametrize("name", ["", "apex_dqn_cartpol", "apex_dqn_cartpole.py", "paper/alpha"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=f"unknown config {name!r}"):
        load_config(name)


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        (
            "dqn_minatar",
            "apex_dqn_minatar",
            {
                "run.num_envs_per_actor": 1,
                "agent.n_step": 1,
                "agent.exploration.epsilon": 0.01,
                "agent.exploration.alpha": 0.0,
                "agent.exploration.annealing_steps": 2_500,
                "agent.replay.samples_per_insert": 8.0,
                "agent.replay.priority_exponent": 0.0,
            },
        ),
        (
            "prioritized_dqn_minatar",
            "dqn_minatar",
            {"agent.replay.priority_exponent": 0.6, "agent.replay.initial_priority": "max"},
        ),
        (
            "ddpg_control_single_host",
            "apex_dpg_control_single_host",
            {
                "run.num_envs_per_actor": 1,
                "agent.critic": "scalar",
                "agent.exploration.noise_scale": 0.3,
                "agent.exploration.min_noise_scale": None,
                "agent.replay.priority_exponent": 0.0,
                "agent.replay.eviction_policy": "fifo",
            },
        ),
    ],
)
def test_what_apex_is_compared_with_differs_in_what_apex_adds(name, other, expected):
    config, base = load_config(name), load_config(other)
    found = {field: get_field(config, field) for field in field_paths(config)}
    of_base = {field: get_field(base, field) for field in field_paths(base)}
    assert {k: v for k, v in found.items() if v != of_base[k]} == expected


@pytest.mark.parametrize(
    ("value", "agent", "name"),
    [
        ("apex_dqn_catch", "a2c", "apex_dqn_catch"),
        ("apex_dqn_catch.py", "apex_dqn", "apex_dqn_catch"),
        ("catc", "apex_dqn", "apex_dqn_catch"),
        ("lunar", "", "apex_dqn_lunarlander"),
        ("cartpole", "a2c", "a2c_cartpole"),
        ("cartpole", "apex_dqn", "apex_dqn_cartpole"),
        ("control", "apex_dpg", "apex_dpg_control"),  # A word counts before parts of words.
    ],
)
def test_settings_are_found_by_their_name_or_a_part_of_it(value, agent, name):
    assert find_config(value, agent).stem == name


@pytest.mark.parametrize(
    ("value", "suggested"),
    [
        ("catsch", "catch"),
        ("dqn", "apex_dqn_atari, .*apex_dqn_catch"),
        ("cartpola", "cartpole"),
        ("ca", "apex_dqn_cartpole, apex_dqn_catch"),
        ("pendulum", "apex_dpg_pendulum"),
        (300 * "x", "none"),
    ],
)
def test_settings_that_are_not_found_have_suggestions(value, suggested):
    with pytest.raises(ValueError, match=rf"^{value} is neither a .*the closest: ({suggested})"):
        find_config(value, "apex_dqn")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def get_config(:\n", "cannot be read: SyntaxError: "),
        ("", "cannot be read: AttributeError: .*get_config"),
        ("def get_config():\n    return {}['x']\n", "cannot be read: KeyError: 'x'"),
        ("raise SystemExit(3)\n", "cannot be read: SystemExit: 3"),
        (
            "def get_config():\n    return {'agent': 1}\n",
            r"gives \{'agent': 1\}; .*ExperimentConfig",
        ),
    ],
)
def test_a_file_of_settings_that_cannot_be_read_is_named(text, message, tmp_path):
    (tmp_path / "co:lon.py").write_text(text)
    with pytest.raises(ValueError, match=rf"co:lon\.py {message}"):
        load_config_file(tmp_path / "co:lon.py")
