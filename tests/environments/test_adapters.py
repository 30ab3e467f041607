"""Tests of environments of gymnasium and dm_env as agents see them."""

from __future__ import annotations

from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import specs, test_utils
from gymnasium import spaces
from gymnasium.wrappers.utils import RunningMeanStd

from apex_agents.environments import adapt


class CartPoleContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> dm_env.Environment:
        return adapt(gymnasium.make("CartPole-v1"), seed=0)

    def make_action_sequence(self) -> list[int]:
        return [0] * 30


class PendulumContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> dm_env.Environment:
        return adapt(gymnasium.make("Pendulum-v1", max_episode_steps=5), seed=0)


class Recorder(gymnasium.Env):
    """Ends as told after one step; records what it receives."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        observation: Any = None,
        ends: tuple[bool, bool] = (False, False),
    ):
        self.observation_space = observation_space
        self.action_space = action_space
        self._observation = observation
        self._ends = ends
        self.actions: list[Any] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.seeds.append(seed)
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.actions.append(action)
        return self._observation, 2, *self._ends, {}


UNIT_BOX = spaces.Box(0.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize(
    ("ends", "step_type", "discount"),
    [
        ((False, False), dm_env.StepType.MID, 1.0),
        ((True, False), dm_env.StepType.LAST, 0.0),
        ((False, True), dm_env.StepType.LAST, 1.0),
        ((True, True), dm_env.StepType.LAST, 0.0),
    ],
)
def test_ends_of_episodes(ends, step_type, discount):
    environment = adapt(Recorder(UNIT_BOX, spaces.Discrete(2), np.zeros(2, np.float32), ends))
    environment.reset()
    step = environment.step(0)
    assert (step.step_type, step.reward, step.discount) == (step_type, 2.0, discount)
    assert environment.step(0).first() == step.last()


def test_cartpole_at_its_time_limit_is_truncated():
    environment = adapt(gymnasium.make("CartPole-v1", max_episode_steps=5), seed=0)
    environment.reset()
    steps = [environment.step(t % 2) for t in range(6)]
    assert [int(step.step_type) for step in steps] == [1, 1, 1, 1, 2, 0]
    assert [step.discount for step in steps] == [1.0, 1.0, 1.0, 1.0, 1.0, None]


def test_discrete_spaces_start_at_zero_for_the_agent():
    recorder = Recorder(spaces.Discrete(3, start=5), spaces.Discrete(2, start=-1), observation=6)
    environment = adapt(recorder)
    step = environment.reset()
    assert (step.observation.dtype, step.observation.tolist()) == (np.float32, [0, 1, 0])
    environment.step(np.int32(0))
    environment.step(np.int32(1))
    assert recorder.actions == [-1, 0]
    # `action_space.sample()` returns this type, too.
    assert {type(action) for action in recorder.actions} == {np.int64}


class ScaledReward(gymnasium.RewardWrapper):
    """Divides rewards by the standard deviation of those before, which an object counts."""

    def __init__(self, environment: gymnasium.Env):
        super().__init__(environment)
        self.seen = RunningMeanStd(shape=())

    def reward(self, reward: Any) -> float:
        self.seen.update(np.array([reward]))
        return reward / np.sqrt(self.seen.var)


class CentredReward(gymnasium.RewardWrapper):
    """Subtracts the mean of all rewards, which the wrapper itself counts."""

    def __init__(self, environment: gymnasium.Env):
        super().__init__(environment)
        self.mean, self.var, self.count = 0.0, 1.0, 0

    def reward(self, reward: Any) -> float:
        self.count += 1
        self.mean += (reward - self.mean) / self.count
        return reward - self.mean


class ConstantScale(gymnasium.RewardWrapper):
    """Scales by numbers that are the same in every environment."""

    mean, var = 1.0, 4.0

    def reward(self, reward: Any) -> float:
        return (reward - self.mean) / np.sqrt(self.var)


@pytest.mark.parametrize(
    "wrapper",
    [
        gymnasium.wrappers.NormalizeObservation,
        gymnasium.wrappers.NormalizeReward,
        ScaledReward,
        CentredReward,
    ],
)
def test_running_statistics_of_one_environment_alone_are_refused(wrapper):
    normalized = wrapper(gymnasium.make("CartPole-v1"))
    outer = gymnasium.wrappers.TimeLimit(normalized, 10)
    with pytest.raises(ValueError, match=f"{wrapper.__name__}.*agent.normalize_observations=True"):
        adapt(outer)
    normalized.update_running_mean = False
    adapt(outer).reset()


def test_constants_and_what_an_environment_itself_counts_are_no_running_statistics():
    inner = Recorder(UNIT_BOX, spaces.Discrete(2), np.zeros(2, np.float32))
    inner.mean, inner.var, inner.count = 0.0, 1.0, 0  # A bandit may count so.
    environment = adapt(ConstantScale(inner))
    environment.reset()
    assert environment.step(0).reward == (2 - 1.0) / 2.0


def test_full_action_is_the_full_torque_of_pendulum():
    environment = adapt(gymnasium.make("Pendulum-v1"), seed=3)
    raw = gymnasium.make("Pendulum-v1")
    np.testing.assert_array_equal(environment.reset().observation, raw.reset(seed=3)[0])
    # The smaller one would show a torque that is only clipped to the bounds.
    for action, torque in ((1.0, 2.0), (0.25, 0.5), (-1.0, -2.0)):
        step = environment.step(np.array([action], np.float32))
        observation, reward, *_ = raw.step(np.array([torque], np.float32))
        np.testing.assert_array_equal(step.observation, observation)
        assert step.reward == reward


def test_seed_is_given_to_the_first_reset_only():
    recorder = Recorder(UNIT_BOX, spaces.Discrete(2), np.zeros(2, np.float32))
    environment = adapt(recorder, seed=7)
    environment.reset()
    environment.reset()
    assert recorder.seeds == [7, None]


def test_a_first_reset_that_fails_with_its_seed_is_tried_again_with_another():
    class FailsWith7(Recorder):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            returned = super().reset(seed=seed, options=options)
            if seed == 7:
                raise RuntimeError("no level of this seed")
            return returned

    def seeds() -> list[int | None]:
        recorder = FailsWith7(UNIT_BOX, spaces.Discrete(2), np.zeros(2, np.float32))
        environment = adapt(recorder, seed=7)
        environment.reset()
        environment.reset()
        return recorder.seeds

    first, second, last = seeds()
    assert first == 7 and second not in (7, None) and last is None
    assert seeds() == [first, second, last]  # It can be repeated.


class Returning(gymnasium.Env):
    """Returns from `reset` and `step` what it was made with."""

    observation_space = UNIT_BOX
    action_space = spaces.Discrete(2)

    def __init__(self, of_step: Any = None, of_reset: Any = None):
        self._of_step = of_step
        self._of_reset = (np.zeros(2), {}) if of_reset is None else of_reset

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return self._of_reset

    def step(self, action: Any) -> Any:
        return self._of_step


@pytest.mark.parametrize(
    ("of_step", "expected"),
    [
        ((np.zeros(2), 1.0, False, {}), r"`step` returns 4 values.*terminated, truncated"),
        (None, "`step` returns a NoneType"),
        (np.zeros(5), "`step` returns a ndarray"),
        ((np.zeros(2), 1.0, False, {}, {}), r"`truncated` is \{\}"),
        ((np.zeros(2), 1.0, None, False, {}), "`terminated` is None"),
        ((np.zeros(2), None, False, False, {}), "reward is None"),
        ((np.zeros(2), "1", False, False, {}), "reward is '1'"),
        ((np.zeros(2), np.ones(2), False, False, {}), "reward is array"),
        ((np.zeros(3), 1.0, False, False, {}), r"\(3,\)"),
    ],
)
def test_a_step_that_returns_something_else_is_an_error(of_step, expected):
    environment = adapt(Returning(of_step))
    environment.reset()
    with pytest.raises(ValueError, match=expected):
        environment.step(0)


# Unpacked, the first would be the observation 0.0, and the second one "a".
@pytest.mark.parametrize("of_reset", [np.zeros(2), {"a": 0.0, "b": 1.0}, (np.zeros(2), {}, 1)])
def test_a_reset_that_returns_something_else_is_an_error(of_reset):
    with pytest.raises(ValueError, match=r"`reset` returns .*\(observation, info\)"):
        adapt(Returning(of_reset=of_reset)).reset()


@pytest.mark.parametrize("reward", [1, np.float32(1.0), np.ones(1), True])
def test_rewards_and_ends_may_be_of_any_type_of_numbers(reward):
    ends = (np.bool_(True), 0)
    step = (np.zeros(2), reward, *ends, {})
    environment = adapt(Returning(step))
    environment.reset()
    timestep = environment.step(0)
    assert (timestep.reward, timestep.discount, timestep.last()) == (1.0, 0.0, True)


def test_mujoco_tasks_take_actions_in_their_own_bounds():
    environment = adapt(gymnasium.make("Humanoid-v5"), seed=3)
    raw = gymnasium.make("Humanoid-v5")
    np.testing.assert_allclose(environment.reset().observation, raw.reset(seed=3)[0], rtol=1e-6)
    assert environment.action_spec() == specs.BoundedArray(
        (17,), np.float32, -1.0, 1.0, name="action"
    )
    step = environment.step(np.full(17, -0.5, np.float32))
    observation, reward, *_ = raw.step(np.full(17, -0.2, np.float32))  # Bounds are +-0.4.
    np.testing.assert_allclose(step.observation, observation, rtol=1e-5, atol=1e-5)
    assert step.reward == pytest.approx(reward, rel=1e-5)


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
    def make_object_under_test(self) -> dm_env.Environment:
        return adapt(Pair(), max_episode_steps=3)


def play(environment: dm_env.Environment, num_steps: int) -> list[dm_env.TimeStep]:
    action = np.array([0.5], np.float32)
    return [environment.reset(), *(environment.step(action) for _ in range(num_steps))]


def one_hot(index: int) -> list[float]:
    return [float(index == i) for i in range(9)]


def test_observations_are_flat_and_actions_scaled():
    pair = Pair()
    environment = adapt(pair)
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
    adapted = adapt(environment)
    adapted.reset()
    adapted.step(2)
    assert environment.actions == [[5]]


class ReturningPair(Pair):
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
def test_a_step_of_dm_env_that_returns_something_else_is_an_error(of_step, expected):
    environment = adapt(ReturningPair(of_step))
    environment.reset()
    with pytest.raises(ValueError, match=expected):
        environment.step(np.zeros(1, np.float32))


def test_episodes_end_as_they_end_or_at_a_limit():
    steps = play(adapt(Pair(length=2)), 3)
    assert [int(step.step_type) for step in steps] == [0, 1, 2, 0]
    assert [step.reward for step in steps] == [None, 1.0, 2.0, None]
    assert [step.discount for step in steps] == [None, 0.5, 0.0, None]
    steps = play(adapt(Pair(), max_episode_steps=2), 6)
    assert [int(step.step_type) for step in steps] == [0, 1, 2, 0, 1, 2, 0]
    assert [step.discount for step in steps] == [None, 0.5, 0.5, None, 0.5, 0.5, None]
    steps = play(adapt(Pair(length=2), max_episode_steps=2), 2)
    assert [step.discount for step in steps] == [None, 0.5, 0.0]
