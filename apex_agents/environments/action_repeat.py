"""Actions that are held for several steps of an environment."""

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.environments.vector_environment import DEFAULT_FRAMES_PER_SECOND


class ActionRepeat(dm_env.Environment):
    """Holds each action for several steps, or until the episode ends.

    With rewards r_k and discounts d_k of these steps, the reward of an agent step is
    r_1 + d_1 r_2 + d_1 d_2 r_3 + ..., and its discount is their product. (Acme's wrapper does the
    same, but its package cannot be imported without gym.)

    Attributes:
      frames_per_second: agent steps per second, for videos.
    """

    def __init__(self, environment: dm_env.Environment, num_repeats: int):
        """Wrap an environment that is stepped `num_repeats` times for an action."""
        self._environment: Any = environment
        self._num_repeats = num_repeats
        frames_per_second = getattr(environment, "frames_per_second", DEFAULT_FRAMES_PER_SECOND)
        self.frames_per_second = frames_per_second / num_repeats

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        reward, discount = 0.0, 1.0
        for _ in range(self._num_repeats):
            timestep = self._environment.step(action)
            if timestep.first():  # The episode before had ended.
                return timestep
            reward += discount * timestep.reward
            discount *= timestep.discount
            if timestep.last():
                break
        return timestep._replace(reward=reward, discount=discount)

    def observation_spec(self) -> specs.Array:
        return self._environment.observation_spec()

    def action_spec(self) -> specs.Array:
        return self._environment.action_spec()

    def reward_spec(self) -> specs.Array:
        return self._environment.reward_spec()

    def discount_spec(self) -> specs.BoundedArray:
        return self._environment.discount_spec()

    def render(self) -> np.ndarray:
        """Let the environment draw itself."""
        return self._environment.render()

    def close(self) -> None:
        self._environment.close()
