"""Tests of the control suite's environments, on the real suite and its physics."""

from __future__ import annotations

import os
import subprocess
import sys

import dm_env
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import test_utils
from whole_runs import TIMEOUT_SECONDS

from apex_agents.environments import adapt, control
from apex_agents.environments.control import ControlEnvironment, check_control_task


def make(task: str, seed: int = 0) -> dm_env.Environment:
    return adapt(ControlEnvironment(task, seed))


class CartpoleContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> dm_env.Environment:
        return make("cartpole:swingup")

    def make_action_sequence(self) -> list[np.ndarray]:
        return [np.zeros(1, np.float32)] * 1002  # Across the end of an episode.


class HumanoidContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> dm_env.Environment:
        return make("humanoid:stand")


def test_observation_is_all_arrays_in_the_order_of_the_task():
    sizes = {
        "joint_angles": 21,
        "head_height": 1,
        "extremities": 12,
        "torso_vertical": 3,
        "com_velocity": 3,
        "velocity": 27,
    }
    environment = make("humanoid:stand", seed=3)
    raw = control.suite.load("humanoid", "stand", task_kwargs={"random": 3})
    step, raw_step = environment.reset(), raw.reset()
    spec = environment.observation_spec()
    assert (spec.shape, spec.dtype, np.isfinite(spec.maximum).any()) == ((67,), np.float32, False)
    generator = np.random.default_rng(0)
    for _ in range(5):
        assert step.observation.dtype == np.float32
        start = 0
        for name, length in sizes.items():
            expected = np.ravel(raw_step.observation[name]).astype(np.float32)
            got = step.observation[start : start + length]
            np.testing.assert_array_equal(got, expected, err_msg=name)
            start += length
        assert step.observation.shape == (start,)
        # Quarters are scaled without rounding.
        action = generator.integers(-4, 5, raw.action_spec().shape) / 4
        step, raw_step = environment.step(action.astype(np.float32)), raw.step(action)
        assert (step.reward, step.discount) == (raw_step.reward, 1.0)


@pytest.mark.parametrize(
    ("action", "one_leg"),
    [(-1.0, [-1.0, -1.0, -0.8]), (0.0, [0.0, 0.05, 0.0]), (1.0, [1.0, 1.1, 0.8])],
)
def test_actions_are_scaled_to_the_bounds_of_the_actuators(action, one_leg):
    environment = make("quadruped:walk")
    raw = control.suite.load(
        "quadruped", "walk", {"random": 0}, environment_kwargs={"flat_observation": True}
    )
    environment.reset()
    raw.reset()
    for _ in range(3):
        step = environment.step(np.full(12, action, np.float32))
        (expected,) = raw.step(np.array(4 * one_leg)).observation.values()
    np.testing.assert_allclose(step.observation, expected, rtol=1e-4, atol=1e-4)


def test_episode_is_truncated_after_1000_steps():
    environment = ControlEnvironment("cartpole:swingup", seed=0)
    environment.reset()
    steps = [environment.step(np.zeros(1, np.float32)) for _ in range(1001)]
    assert [int(step.step_type) for step in steps] == [1] * 999 + [2, 0]
    assert [step.discount for step in steps] == [1.0] * 1000 + [None]


def test_episodes_follow_from_the_seed():
    def first_observations(seed: int) -> list[bytes]:
        environment = ControlEnvironment("cartpole:swingup", seed)
        return [environment.reset().observation.tobytes() for _ in range(2)]

    first, other = first_observations(1), first_observations(2)
    assert first_observations(1) == first
    assert len({*first, *other}) == 4


@pytest.mark.parametrize(
    "task", ["humanoid", "humanoid:fly", "humanoid:stand:x", "lqr:lqr_2_1", "quadruped:escape", ""]
)
def test_unknown_tasks_are_errors(task):
    with pytest.raises(ValueError) as caught:
        check_control_task(task)
    assert str(caught.value).startswith(f"unknown control task {task!r}; closest: ")


def test_import_is_silent_where_there_is_no_display():
    code = (
        "from apex_agents.environments.control import ControlEnvironment\n"
        "ControlEnvironment('humanoid:stand').reset()"
    )
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYTHONWARNINGS")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
