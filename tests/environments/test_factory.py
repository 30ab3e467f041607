"""Tests of environments by name: their specs, arrays and seeds, and the errors."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from apex_agents.environments import AtariConfig, EnvironmentConfig, make_vector_environment

CARTPOLE = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
CONTROL = EnvironmentConfig(suite="control", task="cartpole:swingup")
CATCH = EnvironmentConfig(suite="toy", task="catch")


EVERY_SUITE = pytest.mark.parametrize(
    "config",
    [
        *(CARTPOLE, CATCH, CONTROL, EnvironmentConfig()),
        EnvironmentConfig("gymnasium", "Pendulum-v1"),
        EnvironmentConfig("toy", "point_mass"),
    ],
    ids=lambda config: config.task,
)


@EVERY_SUITE
def test_first_and_second_steps_conform_to_the_spec(config):
    environment = make_vector_environment(config, num_envs=3, seed=0)
    assert environment.num_envs == 3
    actions = np.stack([environment.spec.actions.generate_value()] * 3)
    for time_step, step_type in ((environment.reset(), 0), (environment.step(actions), 1)):
        assert time_step.step_type.tolist() == [step_type] * 3
        for i in range(3):
            environment.spec.observations.validate(time_step.observation[i])
            environment.spec.rewards.validate(time_step.reward[i])
            environment.spec.discounts.validate(time_step.discount[i])
    assert environment.finished_episodes() == []
    environment.close()


@EVERY_SUITE
def test_arrays_of_a_time_step_belong_to_the_caller(config):
    if config.suite == "atari":  # Lost lives have the environment change frames.
        atari = AtariConfig(life_loss_ends_episode=True, max_noops=0)
        config = EnvironmentConfig(task="breakout", atari=atari)
    # What the caller of the first one keeps stays as it is; the caller of the second one overwrites
    # what it gets, which changes nothing of what it gets next.
    kept, overwritten = (make_vector_environment(config, num_envs=2, seed=0) for _ in range(2))
    actions = np.stack([kept.spec.actions.generate_value() + 1] * 2)
    timesteps, copies = [], []
    for step in range(60):
        timesteps.append(kept.step(actions) if step else kept.reset())
        copies.append([array.copy() for array in timesteps[-1]])
        timestep = overwritten.step(actions) if step else overwritten.reset()
        for array, expected in zip(timestep, copies[-1], strict=True):
            np.testing.assert_array_equal(array, expected)
            array[...] = 1
    for timestep, copy in zip(timesteps, copies, strict=True):
        for array, expected in zip(timestep, copy, strict=True):
            np.testing.assert_array_equal(array, expected)
    assert len({timestep.observation.tobytes() for timestep in timesteps}) > 5


@pytest.mark.parametrize("config", [CARTPOLE, CONTROL], ids=lambda config: config.task)
def test_environments_have_seeds_of_their_own(config):
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


def test_no_environment_is_an_error():
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
