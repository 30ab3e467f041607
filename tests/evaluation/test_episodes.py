"""Tests of which episodes an evaluation counts, and of their returns."""

import dm_env
import numpy as np
import pytest
from dm_env import specs

from apex_agents.environments import EnvironmentSpec, Episode, VectorEnvironment
from apex_agents.evaluation.episodes import play_episodes, standard_error


class ScriptedEnvironment(VectorEnvironment):
    """A vector environment that finishes the given episodes, one list per lock-step."""

    def __init__(self, num_envs: int, script: list[list[Episode]]):
        self.num_envs = num_envs
        self.spec = EnvironmentSpec(
            observations=specs.Array((1,), np.float32),
            actions=specs.DiscreteArray(2),
            rewards=specs.Array((), np.float32),
            discounts=specs.BoundedArray((), np.float32, 0, 1),
        )
        self.num_resets = 0
        self.actions: list[np.ndarray] = []
        self.paused: list[int] = []
        self._script = script

    def reset(self) -> dm_env.TimeStep:
        self.num_resets += 1
        return self._timestep()

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        self.actions.append(actions)
        return self._timestep()

    def finished_episodes(self) -> list[Episode]:
        index = len(self.actions) - 1
        return self._script[index] if index < len(self._script) else []

    def pause(self, env_index: int) -> None:
        self.paused.append(env_index)

    def close(self) -> None:
        pass

    def _timestep(self) -> dm_env.TimeStep:
        ones = np.ones(self.num_envs, np.float32)
        observation = np.full([self.num_envs, 1], len(self.actions), np.float32)
        return dm_env.TimeStep(np.ones(self.num_envs, np.int32), ones, ones, observation)


class EchoActor:
    """Returns the observation as the action, and records its calls."""

    def __init__(self):
        self.calls: list[str] = []

    def select_action(self, observation):
        return observation[:, 0].astype(np.int32)

    def observe_first(self, timestep):
        self.calls.append("first")

    def observe(self, action, next_timestep):
        self.calls.append("observe")

    def update(self, wait=False):
        self.calls.append("update")


def episode(env_index: int, episode_return: float, clipped_return: float = 0.0) -> Episode:
    return Episode(env_index, episode_return, clipped_return, length=1)


def test_the_first_episode_of_each_environment_counts_whenever_it_ends():
    script = [
        [],
        [episode(env_index=1, episode_return=5.0)],
        [episode(env_index=1, episode_return=100.0), episode(env_index=2, episode_return=-3.0)],
        [episode(env_index=1, episode_return=200.0)],
        [episode(env_index=0, episode_return=7.0), episode(env_index=2, episode_return=300.0)],
        [episode(env_index=0, episode_return=400.0)],
    ]
    environment = ScriptedEnvironment(3, script)
    new: list[list[Episode]] = []
    episodes = play_episodes(environment, EchoActor(), on_lock_step=new.append)
    assert episodes == [episode(0, 7.0), episode(1, 5.0), episode(2, -3.0)]
    assert new == [[], [episode(1, 5.0)], [episode(2, -3.0)], [], [episode(0, 7.0)]]
    assert len(environment.actions) == 5
    assert environment.paused == [1, 2, 0]
    assert environment.num_resets == 1


def test_unclipped_returns_count_of_the_first_of_two_episodes_in_a_lock_step():
    script = [[episode(0, 0.0, 4.0), episode(0, 2.0)], [episode(0, 9.0), episode(1, -21.0, -1.0)]]
    episodes = play_episodes(ScriptedEnvironment(2, script), EchoActor())
    assert [each.episode_return for each in episodes] == [0.0, -21.0]


def test_the_actor_chooses_the_actions():
    environment = ScriptedEnvironment(2, [[], [], [episode(0, 1.0), episode(1, 1.0)]])
    actor = EchoActor()
    play_episodes(environment, actor)
    np.testing.assert_array_equal(environment.actions, [[0, 0], [1, 1], [2, 2]])
    assert actor.calls == ["first"] + ["observe", "update"] * 3


@pytest.mark.parametrize("num_steps", [0, 4])
def test_an_evaluation_stops_when_it_is_told_to(num_steps):
    environment = ScriptedEnvironment(2, [[episode(0, 1.0)]])
    stop = lambda: len(environment.actions) == num_steps  # noqa: E731
    assert play_episodes(environment, EchoActor(), stop) is None
    assert len(environment.actions) == num_steps


def test_standard_error():
    # The squares of the deviations from 3 are 4, 1, 0, 1, 4: sqrt(10 / 4) / sqrt(5).
    assert standard_error(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(0.5**0.5)
    # The squares of the deviations of 4, 0, 2 from 2 are 4, 4, 0: sqrt(8 / 2) / sqrt(3).
    assert standard_error(np.array([4.0, 0.0, 2.0])) == pytest.approx(2 / 3**0.5)


@pytest.mark.parametrize("returns", [[7.0], [7.0, 7.0], [0.0, 100.0]])
def test_one_or_two_episodes_have_no_standard_error(returns):
    assert np.isnan(standard_error(np.array(returns)))
