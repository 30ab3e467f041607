"""Gymnasium environments with box or discrete spaces, as `dm_env.Environment`s."""

from __future__ import annotations

import os
import warnings
from typing import Any

import dm_env
import gymnasium
import gymnasium.wrappers
import numpy as np
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments.opengl import has_display, prepare_opengl
from apex_agents.environments.vector_environment import DEFAULT_FRAMES_PER_SECOND


class GymnasiumEnvironment(dm_env.Environment):
    """A gymnasium environment that follows dm_env's rules.

    A termination is a LAST step with discount 0, a truncation (time limit) a LAST step with
    discount 1. A step before the first reset, or after a LAST step, ignores its action and resets.
    Actions of a bounded float space are in [-1, 1], and scaled to its bounds. Observations are
    converted to the dtype of their spec, but an array that has it already is not copied: an
    environment that reuses its arrays does so here, too.

    Attributes:
      frames_per_second: speed of videos, from the environment's metadata.
    """

    def __init__(
        self, environment: gymnasium.Env | str, seed: int | None = None, render: bool = False
    ):
        """Adapt an environment.

        Args:
          environment: an environment, or the id of a registered one.
          seed: seed of the first reset, which decides the later episodes, too.
          render: whether the environment is made to be drawn, where an id is given.

        Raises:
          ValueError: the observation or the action space is neither `Box` nor `Discrete`, or the
            environment cannot be drawn.
        """
        if isinstance(environment, str):
            # gymnasium's checker would cost time on every step; our specs check the spaces.
            make = _make_to_render if render else gymnasium.make
            environment = make(environment, disable_env_checker=True)
        self.frames_per_second = float(
            environment.metadata.get("render_fps") or DEFAULT_FRAMES_PER_SECOND
        )
        environment = _rescale_actions(environment)
        self._environment = environment
        self._seed = seed
        self._observation_spec = _make_spec(environment.observation_space, "observation")
        self._action_spec = _make_spec(environment.action_space, "action")
        self._observation_start = _first_value(environment.observation_space)
        self._action_dtype = environment.action_space.dtype
        self._action_start = _first_value(environment.action_space)
        self._needs_reset = True

    def reset(self) -> dm_env.TimeStep:
        observation, _ = self._environment.reset(seed=self._seed)
        self._seed = None
        self._needs_reset = False
        return dm_env.restart(self._convert_observation(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._needs_reset:
            return self.reset()
        action = self._convert_action(action)
        observation, reward, terminated, truncated, _ = self._environment.step(action)
        self._needs_reset = terminated or truncated
        reward, observation = float(reward), self._convert_observation(observation)
        if terminated:
            return dm_env.termination(reward, observation)
        if truncated:
            return dm_env.truncation(reward, observation)
        return dm_env.transition(reward, observation)

    def observation_spec(self) -> specs.BoundedArray:
        """Return the spec of an observation: float32 or uint8, or int32 for a discrete space."""
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray:
        """Return the spec of an action: int32 in `[0, A)`, or `[D]` float32 or whole numbers."""
        return self._action_spec

    def render(self) -> np.ndarray:
        """Let the environment draw itself, uint8 `[H, W, 3]`.

        Raises:
          ValueError: the environment was not made to be drawn, or MuJoCo cannot draw.
        """
        if self._environment.render_mode != "rgb_array":
            raise ValueError(f"{self._environment} was not made with render_mode='rgb_array'")
        if hasattr(self._environment.unwrapped, "mujoco_renderer"):
            prepare_opengl()
        return np.asarray(self._environment.render())

    def close(self) -> None:
        self._environment.close()

    def _convert_observation(self, observation: Any) -> np.ndarray:
        if self._observation_start:
            observation = observation - self._observation_start
        return np.asarray(observation, self._observation_spec.dtype)

    def _convert_action(self, action: Any) -> Any:
        if self._action_start is None:
            return np.asarray(action, self._action_dtype)
        return int(action) + self._action_start


def _make_to_render(task: str, **settings: Any) -> gymnasium.Env:
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame would print complaints.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium warns of what raises an error below.
            environment = gymnasium.make(task, render_mode="rgb_array", **settings)
    except TypeError as error:  # The environment takes no `render_mode`.
        raise ValueError(f"{task} cannot be drawn: {error}") from error
    modes = environment.metadata.get("render_modes", [])
    if "rgb_array" not in modes:
        environment.close()
        raise ValueError(f"{task} cannot be drawn: its render_modes are {modes}, without rgb_array")
    return environment


def _rescale_actions(environment: gymnasium.Env) -> gymnasium.Env:
    space = environment.action_space
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        return environment
    if not space.is_bounded() or np.any(space.low == space.high):
        return environment
    return gymnasium.wrappers.RescaleAction(environment, np.float32(-1.0), np.float32(1.0))


def _make_spec(space: spaces.Space, name: str) -> specs.BoundedArray:
    """Return the spec of a space, float32 for most boxes and int32 for discrete ones.

    Boxes of uint8, and of whole numbers that are actions, which an agent may refuse, stay as they
    are.
    """
    if isinstance(space, spaces.Discrete):
        return specs.DiscreteArray(int(space.n), dtype=np.int32, name=name)
    if isinstance(space, spaces.Box):
        is_kept = space.dtype == np.uint8 or (
            name == "action" and np.issubdtype(space.dtype, np.integer)
        )
        dtype = space.dtype if is_kept else np.float32
        with np.errstate(over="ignore"):  # A bound beyond float32's range becomes infinite.
            low, high = space.low.astype(dtype), space.high.astype(dtype)
        return specs.BoundedArray(space.shape, dtype, low, high, name=name)
    raise ValueError(f"the {name} space must be a Box or a Discrete space, got {space}")


def _first_value(space: spaces.Space) -> int | None:
    """Return the smallest value of a discrete space; None for a box."""
    return int(space.start) if isinstance(space, spaces.Discrete) else None
