"""Tests that a policy with memory acts through the actor: its state at each step of an episode."""

from __future__ import annotations

import itertools

import dm_env
import numpy as np
import pytest
from acme import EnvironmentLoop
from acme.utils import loggers
from dm_env import specs

from apex_agents.acting.actor import ApexActor, run_in_lock_step
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import SyncVectorEnvironment

FIRST, MID, LAST = 0, 1, 2
NO_ACTION = -1


class DigitPolicy:
    """Remembers the digits of an episode, which are its observations, and its previous action.

    With m the number that the digits make, this step's included: action = m % 5, value = m,
    q = 10 * (reward of the time step) + previous action.
    """

    def __init__(self, num_envs: int):
        self.variables = {}
        self.exploration = {}
        self._number = self._previous_action = np.zeros(num_envs, np.int64)

    def value(self, timestep: dm_env.TimeStep) -> np.ndarray:
        number = np.where(timestep.step_type == FIRST, 0, self._number)
        return 10 * number + timestep.observation[:, 0]

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        is_first = timestep.step_type == FIRST
        number = np.where(is_first, 0, self._number)
        previous_action = np.where(is_first, NO_ACTION, self._previous_action)
        self._number = 10 * number + timestep.observation[:, 0]
        self._previous_action = self._number % 5
        return PolicyOutput(
            action=self._previous_action,
            q_taken=10 * timestep.reward + previous_action,
            value=self._number,
            state=(number, previous_action),
        )


class RecordingAdder:
    """Keeps (step type, observation, state, action, q_taken, value) of each time step."""

    def __init__(self):
        self.rows: list[tuple] = []

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        state = tuple(int(part) for part in output.state)
        outputs = (int(output.action), int(output.q_taken), int(output.value))
        self.rows.append((int(timestep.step_type), int(timestep.observation[0]), state, *outputs))

    def close(self) -> None:
        """Do nothing."""


class Digits(dm_env.Environment):
    """Shows a digit at a time; the rewards are 1, 2, ... in each episode.

    Every other episode ends with a truncation.
    """

    def __init__(self, *episodes: str):
        self._episodes = itertools.cycle(enumerate(episodes))
        self._observation = np.zeros(1, np.int64)  # One array for all, as environments may do.

    def reset(self) -> dm_env.TimeStep:
        self._index, self._digits = next(self._episodes)
        self._num_steps = 0
        self._observation[0] = self._digits[0]
        return dm_env.restart(self._observation)

    def step(self, action: int) -> dm_env.TimeStep:
        assert np.shape(action) == ()
        if self._num_steps == len(self._digits) - 1:
            return self.reset()
        self._num_steps += 1
        self._observation[0] = self._digits[self._num_steps]
        if self._num_steps < len(self._digits) - 1:
            return dm_env.transition(float(self._num_steps), self._observation)
        end = dm_env.truncation if self._index % 2 else dm_env.termination
        return end(float(self._num_steps), self._observation)

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.int64)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(5)


ROWS = [
    # The episode 1 2 3, which ends with a termination.
    (FIRST, 1, (0, NO_ACTION), 1, -1, 1),
    (MID, 2, (1, 1), 12 % 5, 10 + 1, 12),
    (LAST, 3, (12, 2), 123 % 5, 20 + 2, 123),
    # The episode 4 5, which is truncated: the value at its end is that of the whole episode.
    (FIRST, 4, (0, NO_ACTION), 4, -1, 4),
    (LAST, 5, (4, 4), 45 % 5, 10 + 4, 45),
    (FIRST, 1, (0, NO_ACTION), 1, -1, 1),
    (MID, 2, (1, 1), 2, 10 + 1, 12),
]


def test_each_environment_has_its_own_memory():
    adders = [RecordingAdder(), RecordingAdder()]
    environment = SyncVectorEnvironment([Digits("123", "45"), Digits("67", "8999")])
    steps = run_in_lock_step(environment, ApexActor(DigitPolicy(2), adders))
    for _ in range(7):
        next(steps)
    assert adders[0].rows == ROWS
    assert adders[1].rows == [
        (FIRST, 6, (0, NO_ACTION), 1, -1, 6),
        (LAST, 7, (6, 1), 2, 10 + 1, 67),
        (FIRST, 8, (0, NO_ACTION), 3, -1, 8),
        (MID, 9, (8, 3), 4, 10 + 3, 89),
        (MID, 9, (89, 4), 4, 20 + 4, 899),
        (LAST, 9, (899, 4), 4, 30 + 4, 8999),
        (FIRST, 6, (0, NO_ACTION), 1, -1, 6),
    ]


class AtOnce(SyncVectorEnvironment):
    """Begins the next episode in the lock-step in which one has ended."""

    def begin_episodes(self) -> dm_env.TimeStep | None:
        if not any(self._is_over):
            return None
        newest = dm_env.TimeStep(*[field.copy() for field in self.newest])
        for i in range(self.num_envs):
            if self._is_over[i]:
                newest.reward[i], newest.discount[i] = 0.0, 1.0
                self._record(newest, i, *self._advance(i, None))
        return newest

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        self.newest = super().step(actions)
        return self.newest


def test_episodes_begin_at_once():
    adders = [RecordingAdder(), RecordingAdder()]
    environment = AtOnce([Digits("123", "45"), Digits("67", "8999")])
    steps = run_in_lock_step(environment, ApexActor(DigitPolicy(2), adders))
    for _ in range(4):
        next(steps)
    # At an end only the value counts, and only that of the truncated episode.
    at_ends = {row[1]: row[-1] for row in adders[0].rows if row[0] == LAST}
    assert at_ends == {3: 0, 5: 45}
    expected = ROWS[:6]  # Two lock-steps fewer than above.
    assert [row[:2] for row in adders[0].rows] == [row[:2] for row in expected]
    assert [row for row in adders[0].rows if row[0] != LAST] == [
        row for row in expected if row[0] != LAST
    ]
    assert [(row[0], row[1], row[2]) for row in adders[1].rows] == [
        (FIRST, 6, (0, NO_ACTION)),
        (LAST, 7, (0, NO_ACTION)),
        (FIRST, 8, (0, NO_ACTION)),
        (MID, 9, (8, 3)),
        (MID, 9, (89, 4)),
        (LAST, 9, (89, 4)),
    ]
    assert adders[1].rows[-1][-1] == 8999


def test_a_policy_with_a_memory_needs_a_value_that_changes_none():
    class Forgetful(DigitPolicy):
        value = property()

    environment = AtOnce([Digits("123", "45")])
    steps = run_in_lock_step(environment, ApexActor(Forgetful(1), [RecordingAdder()]))
    with pytest.raises(TypeError, match="Forgetful has a memory; it needs the method `value`"):
        for _ in range(4):
            next(steps)


class Failing(Digits):
    """Fails once, at its third step."""

    num_calls = 0

    def step(self, action: int) -> dm_env.TimeStep:
        self.num_calls += 1
        if self.num_calls == 3:
            raise RuntimeError("the third step")
        return super().step(action)


def test_the_memory_of_an_abandoned_episode_is_lost():
    adder = RecordingAdder()
    environment = SyncVectorEnvironment([Failing("12345")])
    steps = run_in_lock_step(environment, ApexActor(DigitPolicy(1), [adder]))
    for _ in range(5):
        next(steps)
    assert [row[:3] for row in adder.rows] == [
        (FIRST, 1, (0, NO_ACTION)),
        (MID, 2, (1, 1)),
        (MID, 3, (12, 2)),
        (FIRST, 1, (0, NO_ACTION)),
        (MID, 2, (1, 1)),
    ]


def test_acmes_loop_with_a_single_environment():
    adder = RecordingAdder()
    actor = ApexActor(DigitPolicy(1), [adder])
    loop = EnvironmentLoop(Digits("123", "45"), actor, logger=loggers.NoOpLogger())
    loop.run(num_episodes=3)
    assert adder.rows == [*ROWS, (LAST, 3, (12, 2), 3, 20 + 2, 123)]
