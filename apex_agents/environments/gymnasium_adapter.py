"""Any gymnasium environment with box or discrete spaces, as a `dm_env.Environment`."""

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
from apex_agents.environments.vector_environment import FRAMES_PER_SECOND


class GymnasiumEnvironment(dm_env.Environment):
    """A gymnasium environment under dm_env's rules.

    A termination is a LAST step with discount 0, a truncation (time limit) a LAST step with
    discount 1. A step before the first reset, or after a LAST step, ignores its action and resets.
    Actions of a bounded float space are in [-1, 1], and scaled to its bounds.
    Observations are those of the gymnasium environment, converted to the spec's dtype but not
    copied: an environment that reuses its arrays goes on doing so.

    Attributes:
      frames_per_second: as its metadata say.
    """

    def __init__(
        self, environment: gymnasium.Env | str, seed: int | None = None, render: bool = False
    ):
        """Initialize the adapter.

        Args:
          environment: an environment, or the id of a registered one.
          seed: seed of the first reset, from which later episodes follow; None: unseeded.
          render: whether it will be drawn, if an id is given.

        Raises:
          ValueError: the observation or the action space is neither `Box` nor `Discrete`, or the
            environment cannot be drawn.
        """
        if isinstance(environment, str):
            environment = _make_to_render(environment) if render else _make(environment)
        self.frames_per_second = float(environment.metadata.get("render_fps") or FRAMES_PER_SECOND)
        environment = _rescale_actions(environment)
        self._environment = environment
        self._seed = seed
        self._observation_spec = _make_space_spec(environment.observation_space, "observation")
        self._action_spec = _make_space_spec(environment.action_space, "action")
        self._observation_dtype = self._observation_spec.dtype
        self._observation_start = _first_value(environment.observation_space)
        self._action_dtype = environment.action_space.dtype
        self._action_start = _first_value(environment.action_space)
        self._needs_reset = True

    def reset(self) -> dm_env.TimeStep:
        """Start an episode and return its FIRST step."""
        observation, _ = self._environment.reset(seed=self._seed)
        self._seed = None
        self._needs_reset = False
        return dm_env.restart(self._convert_observation(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Play one step.

        Args:
          action: a value of the action spec: int32, or `[D]`.

        Returns:
          The next time step, with float32 reward and discount.
        """
        if self._needs_reset:
            return self.reset()
        observation, reward, terminated, truncated, _ = self._environment.step(
            self._convert_action(action)
        )
        self._needs_reset = terminated or truncated
        return dm_env.TimeStep(
            step_type=dm_env.StepType.LAST if self._needs_reset else dm_env.StepType.MID,
            reward=np.float32(reward),
            discount=_ZERO if terminated else _ONE,
            observation=self._convert_observation(observation),
        )

    def observation_spec(self) -> specs.BoundedArray:
        """Return the spec of an observation: float32 or uint8, or int32 for a discrete space."""
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray:
        """Return the spec of an action: int32 in `[0, A)`, or float32 `[D]`."""
        return self._action_spec

    def reward_spec(self) -> specs.Array:
        """Return the spec of a reward: a float32 scalar."""
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self) -> specs.BoundedArray:
        """Return the spec of a discount: a float32 scalar in [0, 1]."""
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")

    def render(self) -> np.ndarray:
        """Let the environment draw itself.

        Returns:
          uint8 `[H, W, 3]`.

        Raises:
          ValueError: it draws nothing; says why.
        """
        if self._environment.render_mode != "rgb_array":
            raise ValueError(f"{self._environment} was not made with render_mode='rgb_array'")
        if hasattr(self._environment.unwrapped, "mujoco_renderer"):
            prepare_opengl()
        return np.asarray(self._environment.render())

    def close(self) -> None:
        """Close the gymnasium environment."""
        self._environment.close()

    def _convert_observation(self, observation: Any) -> np.ndarray:
        if self._observation_start:
            observation = observation - self._observation_start
        return np.asarray(observation, self._observation_dtype)

    def _convert_action(self, action: Any) -> Any:
        if self._action_start is None:
            return np.asarray(action, self._action_dtype)
        return int(action) + self._action_start


_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


def _make(task: str, **settings: Any) -> gymnasium.Env:
    # gymnasium's checker would cost time on every step; our specs check the spaces.
    return gymnasium.make(task, disable_env_checker=True, **settings)


def _make_to_render(task: str) -> gymnasium.Env:
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame would complain.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of what is an error here.
            environment = _make(task, render_mode="rgb_array")
    except TypeError as error:  # It knows nothing of render modes.
        raise ValueError(f"{task} cannot be drawn: {error}") from error
    modes = environment.metadata.get("render_modes", [])
    if "rgb_array" not in modes:
        environment.close()
        raise ValueError(f"{task} cannot be drawn: its render_modes are {modes}, without rgb_array")
    return environment


def _make_space_spec(space: spaces.Space, name: str) -> specs.BoundedArray:
    """Return the spec of a space: uint8 stays, other boxes become float32, discrete is int32."""
    if isinstance(space, spaces.Discrete):
        return specs.DiscreteArray(int(space.n), dtype=np.int32, name=name)
    if isinstance(space, spaces.Box):
        dtype = np.uint8 if space.dtype == np.uint8 else np.float32
        with np.errstate(over="ignore"):  # A bound beyond float32's range becomes infinite.
            low, high = space.low.astype(dtype), space.high.astype(dtype)
        return specs.BoundedArray(space.shape, dtype, low, high, name=name)
    raise ValueError(f"the {name} space must be a Box or a Discrete space, got {space}")


def _rescale_actions(environment: gymnasium.Env) -> gymnasium.Env:
    space = environment.action_space
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        return environment
    if not space.is_bounded() or np.any(space.low == space.high):
        return environment
    return gymnasium.wrappers.RescaleAction(environment, np.float32(-1.0), np.float32(1.0))


def _first_value(space: spaces.Space) -> int | None:
    """Return the smallest value of a discrete space; None for a box."""
    return int(space.start) if isinstance(space, spaces.Discrete) else None
