"""Tests of held actions, on an environment whose time steps are given."""

import dm_env
import numpy as np
import pytest
from dm_env import specs

from apex_agents.environments.agent_steps import hold_action
from apex_agents.environments.vector_environment import SyncVectorEnvironment


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
