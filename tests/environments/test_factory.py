"""Tests of the names of environments, of their environments' seeds, and of the errors."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pytest

from apex_agents.environments import AtariConfig, EnvironmentConfig, make_vector_environment

CARTPOLE = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
CONTROL = EnvironmentConfig(suite="control", task="cartpole:swingup")
CATCH = EnvironmentConfig(suite="toy", task="catch")


@pytest.mark.parametrize(
    "config",
    [
        CARTPOLE,
        CATCH,
        CONTROL,
        EnvironmentConfig(),
        EnvironmentConfig("gymnasium", "Pendulum-v1"),
    ],
    ids=lambda config: config.task,
)
def test_first_and_second_steps_conform_to_the_spec(config):
    environment = make_vector_environment(config, num_envs=3, seed=0)
    assert environment.num_envs == 3
    actions = np.stack([environment.spec.actions.generate_value()] * 3)
    for time_step, step_type in ((environment.reset(), 0), (environment.step(actions), 1)):
        assert time_step.step_type.tolist() == [step_type] * 3
        for env_index in range(3):
            environment.spec.observations.validate(time_step.observation[env_index])
            environment.spec.rewards.validate(time_step.reward[env_index])
            environment.spec.discounts.validate(time_step.discount[env_index])
    assert environment.finished_episodes() == []
    environment.close()


@pytest.mark.parametrize("config", [CARTPOLE, CONTROL], ids=lambda config: config.task)
def test_envs_have_seeds_of_their_own(config):
    first = make_vector_environment(config, num_envs=4, seed=1).reset().observation
    again = make_vector_environment(config, num_envs=4, seed=1).reset().observation
    other = make_vector_environment(config, num_envs=4, seed=2).reset().observation
    np.testing.assert_array_equal(first, again)
    starts = [row.tobytes() for row in itertools.chain(first, other)]
    assert len(set(starts)) == 8


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            EnvironmentConfig(suite="atri"),
            "unknown suite 'atri'; closest: atari; allowed: atari, control, g",
        ),
        (EnvironmentConfig(suite="contrl"), "unknown suite 'contrl'; closest: control; allowed"),
        (
            EnvironmentConfig("control", "humanoid:stnad"),
            "unknown control task 'humanoid:stnad'; closest: humanoid:stand, ",
        ),
        (EnvironmentConfig(task="pnog"), "unknown Atari game 'pnog'; closest: pong; allowed: one"),
        (EnvironmentConfig(task="joust"), "unknown Atari game 'joust'"),
        (
            EnvironmentConfig("gymnasium", "CartPol-v1"),
            "unknown gymnasium task 'CartPol-v1'; closest: CartPole-v1",
        ),
        (EnvironmentConfig("gymnasium", "no_such_module:A-v0"), "unknown gymnasium task"),
        (EnvironmentConfig("toy", "cach"), "unknown toy task 'cach'; closest: catch; allowed: cat"),
    ],
)
def test_unknown_names_are_errors(config, message):
    with pytest.raises(ValueError) as caught:
        config.validate()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError):
        make_vector_environment(config, num_envs=1, seed=0)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("sticky_action_probability", 1.0, r"in \[0, 1\)"),
        ("sticky_action_probability", -0.1, r"in \[0, 1\)"),
        ("clip_rewards", 1, "True or False"),
        ("full_action_set", "no", "True or False"),
        ("life_loss_ends_episode", None, "True or False"),
        ("max_noops", -1, "between 0 and 10000"),
        ("max_noops", 10_001, "between 0 and 10000"),  # 2 ** 31 - 2 never returns.
        ("action_repeat", 0, "between 1 and 1000"),
        ("frame_stack", 0, "between 1 and 100"),
        ("frame_stack", 101, "between 1 and 100"),
        ("frame_size", 84.0, "a whole number of at most 64 bits"),
        ("frame_size", 1001, "between 1 and 1000"),
        ("max_frames", 0, "between 1 and 2147483647"),
        ("max_frames", 2**31, "between 1 and 2147483647"),
        ("evaluation_max_frames", True, "a whole number of at most 64 bits"),
        ("evaluation_max_frames", 2**31, "between 1 and 2147483647"),
        ("num_threads", 0, "between 1 and 1000"),
    ],
)
def test_atari_fields_out_of_range_are_errors(field, value, allowed):
    atari = dataclasses.replace(AtariConfig(), **{field: value})
    with pytest.raises(
        ValueError, match=f"environment.atari.{field} is {value!r}; it has to be {allowed}"
    ):
        EnvironmentConfig(atari=atari).validate()


def test_defaults_are_valid():
    EnvironmentConfig().validate()
    CARTPOLE.validate()
    CONTROL.validate()
    CATCH.validate()


def test_no_env_is_an_error():
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        make_vector_environment(CATCH, num_envs=0, seed=0)


def test_control_suite_is_imported_only_when_asked_for():
    code = (
        "import sys\n"
        "from apex_agents.environments import EnvironmentConfig\n"
        "EnvironmentConfig().validate()\n"
        "assert not {'dm_control', 'mujoco'} & set(sys.modules)\n"
        "EnvironmentConfig('control', 'humanoid:stand').validate()\n"
        "assert 'dm_control' in sys.modules"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
