"""Tests of the toy tasks."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import test_utils

from apex_agents.environments import Catch, PointMass
from apex_agents.environments.toy import PositionOnlyCartPole

LEFT, STAY, RIGHT = 0, 1, 2


class CatchContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> Catch:
        return Catch(seed=0)

    def make_action_sequence(self) -> itertools.chain:
        return itertools.chain([LEFT] * 15, [RIGHT] * 15)


def test_boards_of_an_episode_where_the_ball_falls_in_the_middle():
    environment = Catch(rows=3, columns=1, seed=0)
    steps = [environment.reset(), environment.step(STAY), environment.step(STAY)]
    assert [step.observation.tolist() for step in steps] == [[1, 0, 1], [0, 1, 1], [0, 0, 1]]


def test_paddle_moves_and_stops_at_the_walls():
    environment = Catch(rows=6, columns=3, seed=0)
    environment.reset()
    paddles = []
    for action in (LEFT, LEFT, RIGHT, STAY):
        bottom_row = environment.step(action).observation[-3:]
        paddles.append(int(bottom_row.argmax()))
    assert paddles == [0, 0, 1, 1]


def follow_ball(observation: np.ndarray) -> int:
    board = observation.reshape(10, 5)
    ball, paddle = board[:-1].sum(axis=0).argmax(), board[-1].argmax()
    return STAY + int(np.sign(ball - paddle))


def avoid_ball(observation: np.ndarray) -> int:
    board = observation.reshape(10, 5)
    return RIGHT if board[:-1].sum(axis=0).argmax() < 2 else LEFT


@pytest.mark.parametrize(("policy_fn", "outcome"), [(follow_ball, 1.0), (avoid_ball, -1.0)])
def test_reward_comes_at_the_bottom(policy_fn, outcome):
    environment = Catch(seed=3)
    for _ in range(20):
        step, rewards = environment.reset(), []
        while not step.last():
            step = environment.step(policy_fn(step.observation))
            rewards.append(step.reward)
        assert rewards == [0.0] * 8 + [outcome]
        assert step.discount == 0.0


@pytest.mark.parametrize("task", [Catch, PointMass])
def test_a_seed_decides_where_episodes_start(task):
    def start(seed: int) -> list[list[float]]:
        environment = task(seed=seed)
        return [environment.reset().observation.tolist() for _ in range(20)]

    assert start(1) == start(1)
    assert start(1) != start(2)
    columns = {int(np.argmax(observation[:5])) for observation in start(1)}
    assert task is PointMass or columns == {0, 1, 2, 3, 4}
    assert task is Catch or np.ptp(start(1)) > 1


def test_unknown_action_is_an_error():
    environment = Catch()
    environment.reset()
    with pytest.raises(ValueError, match="action must be 0, 1 or 2, got 3"):
        environment.step(3)


class PointMassContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self) -> PointMass:
        return PointMass(seed=0)

    def make_action_sequence(self) -> list[np.ndarray]:
        return [np.array([push], np.float32) for push in (1, -1, 0.5, 0, 0, 1, 1, 1, 1, 1, 1, 1)]


def test_point_moves_as_it_is_pushed_and_stays_on_the_line():
    environment = PointMass(step_size=0.5, num_steps=6, seed=0)
    start = float(environment.reset().observation[0])
    assert -1 < start < 0.5
    steps = [environment.step(np.array([push])) for push in (1.0, -0.5, -1, -1, -1, -1)]
    expected = [start + 0.5, start + 0.25, *np.maximum(start + 0.25 - 0.5 * np.arange(1, 5), -1.0)]
    np.testing.assert_allclose([step.observation[0] for step in steps], expected, rtol=1e-6)
    np.testing.assert_allclose([step.reward for step in steps], -np.abs(expected), rtol=1e-6)
    assert [step.last() for step in steps] == [False] * 5 + [True]
    assert steps[-1].discount == 1.0
    assert environment.step(np.array([1.0])).first()


def test_cartpole_without_velocities_stacks_positions():
    full, alone = gymnasium.make("CartPole-v1"), PositionOnlyCartPole()
    stacked = PositionOnlyCartPole(num_stacked=3)
    environments = full, alone, stacked
    whole, newest, stack = [environment.reset(seed=1)[0] for environment in environments]
    positions = [whole[::2]] * 3
    for action in (1, 1, 0, 1):
        np.testing.assert_array_equal(newest, positions[-1])
        np.testing.assert_array_equal(stack, np.concatenate(positions[-3:]))
        assert stacked.observation_space.contains(stack)
        whole, newest, stack = [environment.step(action)[0] for environment in environments]
        positions.append(whole[::2])
