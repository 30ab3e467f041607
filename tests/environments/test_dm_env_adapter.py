"""Tests of the adapter of dm_env environments, on one whose every step is written down."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import specs, test_utils

from apex_agents.environments import DmEnvironment


class Pair(dm_env.Environment):
    """Observes its number of steps and its last action; ends with discount 0 after `length`."""

    frames_per_second = 7.0

    def __init__(self, length: int = 4):
        self.actions: list[Any] = []
        self._length = length
        self._steps = length

    def reset(self) -> dm_env.TimeStep:
        self._steps = 0
        return dm_env.restart(self._observe(0.0))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._steps == self._length:
            return self.reset()
        self.actions.append(action)
        self._steps += 1
        observation = self._observe(float(action[0]))
        if self._steps == self._length:
            return dm_env.termination(2.0, observation)
        return dm_env.transition(1.0, observation, discount=0.5)

    def observation_spec(self) -> dict[str, specs.Array]:
        return {"steps": specs.DiscreteArray(9), "action": specs.Array((1,), np.float64)}

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((1,), np.float64, 0.0, 10.0)

    def render(self) -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    def _observe(self, action: float) -> dict[str, Any]:
        return {"steps": self._steps, "action": np.array([action])}


class PairContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> DmEnvironment:
        return DmEnvironment(Pair(), max_episode_steps=3)


def play(environment: DmEnvironment, num_steps: int) -> list[dm_env.TimeStep]:
    action = np.array([0.5], np.float32)
    return [environment.reset(), *(environment.step(action) for _ in range(num_steps))]


def one_hot(index: int) -> list[float]:
    return [float(index == i) for i in range(9)]


def test_observations_are_flat_and_actions_scaled():
    pair = Pair()
    environment = DmEnvironment(pair)
    assert environment.observation_spec().shape == (10,)
    assert environment.action_spec() == specs.BoundedArray(
        (1,), np.float32, -1.0, 1.0, name="action"
    )
    first, second = play(environment, 1)
    assert first.observation.dtype == np.float32
    assert first.observation.tolist() == [0.0, *one_hot(0)]
    assert second.observation.tolist() == [7.5, *one_hot(1)]  # 0 + 10 * (0.5 + 1) / 2.
    assert pair.actions[0].dtype == np.float64
    assert environment.frames_per_second == 7.0
    assert environment.render().shape == (2, 2, 3)


class Strict(Pair):
    """Takes only actions that conform to its spec, which has a dtype and does not start at 0."""

    def step(self, action: Any) -> dm_env.TimeStep:
        self.action_spec().validate(action)
        return super().step([action])

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((), np.int16, 3, 5)


def test_discrete_actions_have_the_dtype_of_the_spec():
    environment = Strict()
    adapted = DmEnvironment(environment)
    adapted.reset()
    adapted.step(2)
    assert environment.actions == [[5]]


class Returning(Pair):
    """Returns from `step` what it was made with."""

    def __init__(self, of_step: Any):
        super().__init__()
        self._of_step = of_step

    def step(self, action: Any) -> Any:
        return self._of_step


OBSERVATION = {"steps": 1, "action": np.zeros(1)}


@pytest.mark.parametrize(
    ("of_step", "expected"),
    [
        ((OBSERVATION, 1.0, False, False, {}), "returns a tuple"),
        (None, "returns a NoneType"),
        (dm_env.transition(None, OBSERVATION), "reward is None"),
        (dm_env.transition(1.0, OBSERVATION, discount=None), "discount is None"),
        (dm_env.transition(np.ones(2), OBSERVATION), "reward is array"),
    ],
)
def test_a_step_that_returns_something_else_is_an_error(of_step, expected):
    environment = DmEnvironment(Returning(of_step))
    environment.reset()
    with pytest.raises(ValueError, match=expected):
        environment.step(np.zeros(1, np.float32))


def test_episodes_end_as_they_end():
    steps = play(DmEnvironment(Pair(length=2)), 3)
    assert [int(step.step_type) for step in steps] == [0, 1, 2, 0]
    assert [step.discount for step in steps] == [None, 0.5, 0.0, None]
    assert [step.reward for step in steps] == [None, 1.0, 2.0, None]


def test_a_limit_truncates_and_a_termination_at_the_limit_stays_one():
    steps = play(DmEnvironment(Pair(), max_episode_steps=2), 6)
    assert [int(step.step_type) for step in steps] == [0, 1, 2, 0, 1, 2, 0]
    assert [step.discount for step in steps] == [None, 0.5, 0.5, None, 0.5, 0.5, None]
    steps = play(DmEnvironment(Pair(length=2), max_episode_steps=2), 2)
    assert [step.discount for step in steps] == [None, 0.5, 0.0]
