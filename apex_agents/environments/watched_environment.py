"""Environments whose steps and resets are named while they last."""

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.environments.vector_environment import DEFAULT_FRAMES_PER_SECOND
from apex_agents.waits import Waiting


def name_call(what: str, call: str, timeout_seconds: float | None) -> Waiting:
    """Name the wait for a call, `step` or `reset`, that may take so long; None: any time."""
    if timeout_seconds is None:
        return Waiting(f"{what} to return from {call}")
    limit = f"environment.step_timeout_seconds is {timeout_seconds:g}"
    return Waiting(f"{what} to return from {call} ({limit})", limit_seconds=timeout_seconds)


class WatchedEnvironment(dm_env.Environment):
    """An environment of which the node's supervisor sees that a step or a reset does not return.

    Attributes:
      frames_per_second: agent steps per second, for videos.
    """

    def __init__(self, environment: dm_env.Environment, index: int, timeout_seconds: float | None):
        """Wrap the environment with an index among those of its node."""
        self._environment: Any = environment
        what = f"environment {index}"
        self._in_reset = name_call(what, "reset", timeout_seconds)
        self._in_step = name_call(what, "step", timeout_seconds)
        self._is_over = True  # Whether the next step is a reset.
        self.frames_per_second = getattr(
            environment, "frames_per_second", DEFAULT_FRAMES_PER_SECOND
        )

    def reset(self) -> dm_env.TimeStep:
        with self._in_reset:
            timestep = self._environment.reset()
        self._is_over = False
        return timestep

    def step(self, action: Any) -> dm_env.TimeStep:
        with self._in_reset if self._is_over else self._in_step:
            timestep = self._environment.step(action)
        self._is_over = timestep.last()
        return timestep

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
