"""Environments of dm_env whose observations and actions agents can handle."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations, space_of, to_number
from apex_agents.environments.vector_environment import DEFAULT_FRAMES_PER_SECOND


class DmEnvironment(dm_env.Environment):
    """A dm_env environment with observations and actions as agents have them.

    Attributes:
      frames_per_second: speed of videos, the environment's own where it has this attribute.
    """

    def __init__(self, environment: dm_env.Environment, max_episode_steps: int | None = None):
        """Adapt an environment.

        Args:
          environment: the environment.
          max_episode_steps: number of steps after which an episode is truncated; None: no limit.

        Raises:
          ValueError: agents cannot handle the observations or the actions.
        """
        self._environment: Any = environment
        self._max_steps = max_episode_steps
        self._observation_spec, self._convert_observation = convert_observations(
            space_of(environment.observation_spec(), "observation")
        )
        self._action_spec = convert_actions(space_of(environment.action_spec(), "action"))
        self.frames_per_second = getattr(
            environment, "frames_per_second", DEFAULT_FRAMES_PER_SECOND
        )
        self._num_steps = 0
        self._needs_reset = True

    def reset(self) -> dm_env.TimeStep:
        return self._convert(self._environment.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._needs_reset:
            return self.reset()
        return self._convert(self._environment.step(self._action_spec.to_environment(action)))

    def observation_spec(self) -> specs.BoundedArray:
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray:
        return self._action_spec

    def reward_spec(self) -> specs.Array:
        return self._environment.reward_spec()

    def discount_spec(self) -> specs.BoundedArray:
        return self._environment.discount_spec()

    def render(self) -> np.ndarray:
        """Let the environment draw itself, if it has a method `render` that returns the frame."""
        return np.asarray(self._environment.render())

    def close(self) -> None:
        self._environment.close()

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if not isinstance(timestep, dm_env.TimeStep):
            kind = type(timestep).__name__
            raise ValueError(f"it returns a {kind}; it has to return a dm_env.TimeStep")
        self._num_steps = 0 if timestep.first() else self._num_steps + 1
        if timestep.mid() and self._num_steps == self._max_steps:
            timestep = timestep._replace(step_type=dm_env.StepType.LAST)
        self._needs_reset = timestep.last()
        if not timestep.first():  # There they are not read.
            timestep = timestep._replace(
                reward=to_number(timestep.reward, "reward"),
                discount=to_number(timestep.discount, "discount"),
            )
        return timestep._replace(observation=self._convert_observation(timestep.observation))
