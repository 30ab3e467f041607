"""Tests of held actions, on an environment whose time steps are given."""

import dm_env
import pytest

from apex_agents.environments.action_repeat import ActionRepeat


class Script(dm_env.Environment):
    """Returns the time steps that it was given."""

    def __init__(self, *timesteps: dm_env.TimeStep):
        self._timesteps = iter(timesteps)

    def reset(self):
        return next(self._timesteps)

    def step(self, action):
        return next(self._timesteps)

    def observation_spec(self):
        raise NotImplementedError

    def action_spec(self):
        raise NotImplementedError


def test_later_rewards_are_discounted_by_the_environment():
    steps = [dm_env.transition(reward, 0, discount) for reward, discount in ((1, 0.5), (2, 0.8))]
    held = ActionRepeat(Script(dm_env.restart(0), *steps, dm_env.transition(4.0, 7, 0.5)), 3)
    held.reset()
    timestep = held.step(0)
    assert timestep.reward == pytest.approx(1 + 0.5 * 2 + 0.5 * 0.8 * 4)
    assert timestep.discount == pytest.approx(0.5 * 0.8 * 0.5)
    assert timestep.observation == 7


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_an_episode_ends_within_an_action(discount):
    last = dm_env.TimeStep(dm_env.StepType.LAST, 2.0, discount, 5)
    held = ActionRepeat(Script(dm_env.transition(1.0, 4), last, dm_env.restart(0)), 3)
    timestep = held.step(0)
    assert timestep.last()
    assert (timestep.reward, timestep.discount, timestep.observation) == (3.0, discount, 5)
    assert held.step(0).first()
