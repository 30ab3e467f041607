"""Tests of the vector environment made of single ones, on scripted environments."""

from __future__ import annotations

import sys

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments import (
    EnvironmentSpec,
    Episode,
    adapt,
)
from apex_agents.environments.vector_environment import SyncVectorEnvironment, hold_action

FIRST, MID, LAST = 0, 1, 2


class Countdown(dm_env.Environment):
    """Ends after `length` steps; the observation is `[episode, steps so far]`, the reward given."""

    def __init__(self, length: int, reward: float, last_discount: float, size: int = 2):
        self._length = length
        self._reward = reward
        self._last_discount = last_discount
        self._size = size
        self._episode = 0
        self._steps = 0
        self._ended = True
        self.actions: list[int] = []
        self.closed = False

    def reset(self) -> dm_env.TimeStep:
        self._episode += 1
        self._steps = 0
        self._ended = False
        return dm_env.restart(self._observe())

    def step(self, action: int) -> dm_env.TimeStep:
        if self._ended:
            return self.reset()
        self.actions.append(int(action))
        self._steps += 1
        self._ended = self._steps == self._length
        if self._ended:
            return dm_env.TimeStep(
                dm_env.StepType.LAST, self._reward, self._last_discount, self._observe()
            )
        return dm_env.transition(self._reward, self._observe())

    def observation_spec(self) -> specs.Array:
        return specs.Array((self._size,), np.float32, name="observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(100)

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> np.ndarray:
        return np.array([self._episode, self._steps], np.float32)


def as_lists(time_step: dm_env.TimeStep) -> list[list]:
    return [array.tolist() for array in time_step]


def test_environments_advance_together_whatever_their_episode_lengths():
    short = Countdown(length=2, reward=0.5, last_discount=0.0)
    long = Countdown(length=3, reward=-1.0, last_discount=1.0)
    environment = SyncVectorEnvironment([short, long])

    steps = [environment.reset()]
    steps += [environment.step(np.array([t, 10 + t])) for t in range(1, 7)]

    # Read after the last step: the arrays of a step are not those of the next one.
    assert [as_lists(step) for step in steps] == [
        [[FIRST, FIRST], [0.0, 0.0], [1.0, 1.0], [[1, 0], [1, 0]]],
        [[MID, MID], [0.5, -1.0], [1.0, 1.0], [[1, 1], [1, 1]]],
        [[LAST, MID], [0.5, -1.0], [0.0, 1.0], [[1, 2], [1, 2]]],
        [[FIRST, LAST], [0.0, -1.0], [1.0, 1.0], [[2, 0], [1, 3]]],
        [[MID, FIRST], [0.5, 0.0], [1.0, 1.0], [[2, 1], [2, 0]]],
        [[LAST, MID], [0.5, -1.0], [0.0, 1.0], [[2, 2], [2, 1]]],
        [[FIRST, MID], [0.0, -1.0], [1.0, 1.0], [[3, 0], [2, 2]]],
    ]
    assert short.actions == [1, 2, 4, 5]
    assert long.actions == [11, 12, 13, 15, 16]


def test_an_environment_that_is_paused_is_stepped_no_further_until_a_reset():
    countdowns = [Countdown(2, 1.0, 0.0), Countdown(5, 1.0, 0.0)]
    environment = SyncVectorEnvironment(countdowns)
    environment.reset()
    for _ in range(2):
        environment.step(np.array([3, 4]))
    environment.pause(0)
    for _ in range(3):
        time_step = environment.step(np.array([5, 6]))
    assert as_lists(time_step) == [[MID, LAST], [0.0, 1.0], [1.0, 0.0], [[0.0, 0.0], [1.0, 5.0]]]
    assert [episode.env_index for episode in environment.finished_episodes()] == [0, 1]
    assert (countdowns[0].actions, countdowns[1].actions) == ([3, 3], [4, 4, 6, 6, 6])
    assert environment.reset().observation.tolist() == [[2, 0], [2, 0]]
    environment.step(np.array([7, 8]))
    assert countdowns[0].actions[-1] == 7


def test_finished_episodes_are_reported_once():
    environment = SyncVectorEnvironment([Countdown(2, 0.5, 0.0), Countdown(3, -1.0, 1.0)])
    environment.reset()
    reports = []
    for _ in range(6):
        environment.step(np.zeros(2, np.int32))
        reports.append(environment.finished_episodes())
    assert reports == [
        [],
        [Episode(env_index=0, episode_return=0.5 + 0.5, clipped_return=0.5 + 0.5, length=2)],
        [Episode(env_index=1, episode_return=-3.0, clipped_return=-3.0, length=3)],
        [],
        [Episode(env_index=0, episode_return=0.5 + 0.5, clipped_return=0.5 + 0.5, length=2)],
        [],
    ]


def test_a_return_is_the_sum_of_the_rewards_before_they_are_rounded():
    environment = SyncVectorEnvironment([Countdown(1, 0.9, 0.0)])
    environment.reset()
    environment.step(np.zeros(1, np.int32))
    assert environment.finished_episodes()[0].episode_return == 0.9


class CountdownInNumbers(Countdown):
    """Its step types are numbers, as `TimeStep.last` allows."""

    def reset(self) -> dm_env.TimeStep:
        return super().reset()._replace(step_type=0)

    def step(self, action: int) -> dm_env.TimeStep:
        timestep = super().step(action)
        return timestep._replace(step_type=int(timestep.step_type))


def test_step_types_may_be_numbers():
    environments = [
        SyncVectorEnvironment([kind(2, 0.5, 0.0)]) for kind in (Countdown, CountdownInNumbers)
    ]
    timesteps = [environment.reset() for environment in environments]
    for _ in range(5):
        assert as_lists(timesteps[0]) == as_lists(timesteps[1])
        timesteps = [environment.step(np.zeros(1, np.int32)) for environment in environments]
    finished = [environment.finished_episodes() for environment in environments]
    assert len(finished[1]) == 2 and finished[0] == finished[1]


def test_a_reset_forgets_the_unfinished_episode():
    environment = SyncVectorEnvironment([Countdown(2, 1.0, 0.0)])
    for _ in range(2):
        environment.reset()
        environment.step(np.zeros(1, np.int32))
    assert environment.current_episode(0) == Episode(0, 1.0, 1.0, 1)
    environment.step(np.zeros(1, np.int32))
    assert environment.finished_episodes() == [Episode(0, 1.0 + 1.0, 1.0 + 1.0, 2)]
    assert environment.current_episode(0) == Episode(0, 1.0 + 1.0, 1.0 + 1.0, 2)
    environment.step(np.zeros(1, np.int32))
    assert environment.current_episode(0) == Episode(0, 0.0, 0.0, 0)


def test_spec_is_that_of_one_environment():
    environment = Countdown(2, 1.0, 0.0)
    assert SyncVectorEnvironment([environment, Countdown(3, 1.0, 0.0)]).spec == EnvironmentSpec(
        environment.observation_spec(),
        environment.action_spec(),
        specs.Array((), np.float32),
        specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    # Fields have the positions and names of acme.specs.EnvironmentSpec.
    assert EnvironmentSpec._fields == ("observations", "actions", "rewards", "discounts")


def test_close_closes_every_environment():
    environments = [Countdown(2, 1.0, 0.0), Countdown(2, 1.0, 0.0)]
    SyncVectorEnvironment(environments).close()
    assert all(environment.closed for environment in environments)


@pytest.mark.parametrize(
    ("environments", "message"),
    [
        ([], "at least one environment"),
        ([Countdown(2, 1.0, 0.0), Countdown(2, 1.0, 0.0, size=3)], "environment 1 has"),
    ],
)
def test_environments_that_are_none_or_differ_are_errors(environments, message):
    with pytest.raises(ValueError, match=message):
        SyncVectorEnvironment(environments)


class Failing(Countdown):
    """Fails at steps with the actions 90 to 95, and at the resets with the given numbers."""

    def __init__(self, *settings: float, failing_resets: tuple[int, ...] = ()):
        super().__init__(*settings)
        self._failing_resets = failing_resets
        self._num_resets = 0

    def reset(self) -> dm_env.TimeStep:
        self._num_resets += 1
        if self._num_resets in self._failing_resets:
            raise OSError(f"reset {self._num_resets} failed")
        return super().reset()

    def step(self, action: int) -> dm_env.TimeStep:
        timestep = super().step(action)
        if action == 90:
            raise OSError("the simulation blew up")
        if action == 91:
            return timestep._replace(observation=np.array([np.nan, 1.0], np.float32))
        if action == 92:
            return timestep._replace(reward=np.inf)
        if action == 93:
            return timestep._replace(reward=None)
        if action == 94:
            return timestep._replace(reward=1e39)  # Infinite in float32.
        if action == 95:
            return timestep._replace(discount=np.nan)
        if action == 96:
            return timestep._replace(discount=1.5)
        if action == 97:
            return timestep._replace(discount=-0.1)
        if action == 98:
            sys.exit("no licence")
        return timestep


@pytest.mark.fault(
    breaks="an environment that raises, or returns NaN or infinity",
    holds="its environment begins another episode, counted and logged",
)
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (90, "OSError: the simulation blew up"),
        (91, "ValueError: the observation is not finite"),
        (92, "ValueError: the reward is inf"),
        (93, "ValueError: the reward is None"),
        (94, "ValueError: the reward is 1e+39"),
        (95, "ValueError: the discount is nan; it has to be in [0, 1]"),
        (96, "ValueError: the discount is 1.5; it has to be in [0, 1]"),
        (97, "ValueError: the discount is -0.1; it has to be in [0, 1]"),
        (98, "RuntimeError: it calls sys.exit('no licence')"),
    ],
)
def test_an_environment_that_fails_begins_another_episode(action, message, caplog):
    environment = SyncVectorEnvironment([Countdown(9, 1.0, 0.0), Failing(9, 2.0, 0.0)])
    environment.reset()
    environment.step(np.array([1, 1]))
    timestep = environment.step(np.array([1, action]))
    # The failing environment shows the first observation of its second episode, the other one
    # continues.
    assert timestep.step_type.tolist() == [MID, FIRST]
    assert timestep.observation.tolist() == [[1, 2], [2, 0]]
    assert timestep.reward.tolist() == [1, 0]
    assert environment.num_failures == 1
    (record,) = caplog.records
    assert record.getMessage() == f"Environment 1 begins another episode: {message}"
    for _ in range(9):
        timestep = environment.step(np.array([1, 1]))
    # The abandoned episode is neither reported nor counted.
    assert environment.finished_episodes() == [Episode(0, 9.0, 9.0, 9), Episode(1, 18.0, 18.0, 9)]


class Counter(gymnasium.Env):
    """Observes the last action, twice, whether its space contains it or not."""

    observation_space = spaces.Dict({"a": spaces.Box(0, 255, (2,), np.uint8)})
    action_space = spaces.Discrete(300)

    def reset(self, *, seed=None, options=None):
        return {"a": np.zeros(2, np.uint8)}, {}

    def step(self, action):
        return {"a": np.full(2, action)}, 1.0, False, False, {}


class CounterOfDmEnv(Countdown):
    """The same in dm_env."""

    def __init__(self):
        super().__init__(9, 1.0, 0.0)

    def step(self, action: int) -> dm_env.TimeStep:
        return super().step(action)._replace(observation={"a": np.full(2, action)})

    def observation_spec(self) -> dict[str, specs.Array]:
        return {"a": specs.Array((2,), np.uint8)}

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(300)

    def _observe(self) -> dict[str, np.ndarray]:
        return {"a": np.zeros(2, np.uint8)}


@pytest.mark.fault(
    breaks="an observation that its space does not contain",
    holds="its environment begins another episode, counted and logged",
)
@pytest.mark.parametrize("make", [Counter, CounterOfDmEnv])
def test_an_observation_that_its_space_does_not_contain_is_a_failure(make, caplog):
    environment = SyncVectorEnvironment([adapt(make()), adapt(make())])
    environment.reset()
    timestep = environment.step(np.array([255, 256]))
    assert timestep.step_type.tolist() == [MID, FIRST]
    assert timestep.observation.tolist() == [[255, 255], [0, 0]]
    assert environment.num_failures == 1
    (record,) = caplog.records
    assert all(text in record.getMessage() for text in ("observation['a']", "256", "Box(0, 255"))


def test_an_environment_that_fails_in_each_episode_is_an_error():
    environment = SyncVectorEnvironment([Failing(2, 1.0, 0.0)])
    environment.reset()
    for action in (90, 91, 1, 1, 0, 90, 1, 92, 1):  # The third episode ends regularly.
        environment.step(np.array([action]))
    with pytest.raises(OSError, match="the simulation blew up"):
        environment.step(np.array([90]))
    assert environment.num_failures == 5


def test_a_reset_that_fails_is_tried_again():
    environment = SyncVectorEnvironment([Failing(1, 1.0, 0.0, failing_resets=(1, 3, 4))])
    assert environment.reset().step_type.tolist() == [FIRST]
    environment.step(np.array([1]))
    timestep = environment.step(np.array([0]))
    assert timestep.step_type.tolist() == [FIRST]
    assert timestep.observation.tolist() == [[2, 0]]
    assert environment.num_failures == 3


def test_resets_that_fail_count_as_failures_in_a_row():
    environment = SyncVectorEnvironment([Failing(9, 1.0, 0.0, failing_resets=(2, 3, 4))])
    environment.reset()
    with pytest.raises(OSError, match="reset 3 failed"):
        environment.step(np.array([90]))
    assert environment.num_failures == 3


class Script(dm_env.Environment):
    """Returns the time steps that it was given."""

    frames_per_second = 60.0

    def __init__(self, *timesteps: dm_env.TimeStep):
        self._timesteps = iter(timesteps)

    def reset(self):
        return next(self._timesteps)

    def step(self, action):
        return next(self._timesteps)

    def observation_spec(self):
        return specs.Array((), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(2)


def test_later_rewards_are_discounted_by_the_environment_for_the_agent_alone():
    steps = [dm_env.transition(reward, 0, discount) for reward, discount in ((1, 0.5), (2, 0.8))]
    timestep, reward = hold_action(Script(*steps, dm_env.transition(4.0, 7, 0.5)), 0, 3)
    assert timestep.reward == pytest.approx(1 + 0.5 * 2 + 0.5 * 0.8 * 4)
    assert timestep.discount == pytest.approx(0.5 * 0.8 * 0.5)
    assert timestep.observation == 7
    assert reward == 1 + 2 + 4


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_an_episode_ends_within_an_action(discount):
    last = dm_env.TimeStep(dm_env.StepType.LAST, 2.0, discount, 5)
    script = Script(dm_env.transition(1.0, 4), last, dm_env.restart(0))
    timestep, reward = hold_action(script, 0, 3)
    assert timestep.last()
    assert (timestep.reward, timestep.discount, timestep.observation) == (3.0, discount, 5)
    assert reward == 3.0
    timestep, reward = hold_action(script, 0, 3)
    assert (timestep.first(), reward) == (True, 0.0)


@pytest.mark.parametrize("reward", [np.nan, np.inf, 1e39, None])
def test_a_reward_that_is_not_finite_within_an_action_is_an_error(reward):
    steps = [dm_env.transition(each, 0) for each in (1.0, reward, 1.0)]
    with pytest.raises(ValueError, match="the reward is"):
        hold_action(Script(*steps), 0, 3)


@pytest.mark.parametrize(
    ("num_repeats", "received"),
    [
        (1, 10.0 + 20.0 + 30.0 + 40.0),
        (2, (10.0 + 0.5 * 20.0) + (30.0 + 0.5 * 40.0)),
        (3, (10.0 + 0.5 * 20.0 + 0.25 * 30.0) + 40.0),
    ],
)
def test_a_return_is_the_sum_of_the_rewards_however_long_an_action_is_held(num_repeats, received):
    steps = [dm_env.transition(reward, 0, 0.5) for reward in (10.0, 20.0, 30.0)]
    last = dm_env.TimeStep(dm_env.StepType.LAST, 40.0, 0.5, 0)
    vector = SyncVectorEnvironment([Script(dm_env.restart(0), *steps, last)], num_repeats)
    vector.reset()
    rewards = [float(vector.step(np.zeros(1, np.int32)).reward[0])]
    while not (episodes := vector.finished_episodes()):
        rewards.append(float(vector.step(np.zeros(1, np.int32)).reward[0]))
    (episode,) = episodes
    assert episode.episode_return == 10.0 + 20.0 + 30.0 + 40.0
    assert episode.clipped_return == sum(rewards) == received
    assert episode.length == len(rewards) == -(-4 // num_repeats)
    assert vector.frames_per_second == 60.0 / num_repeats
