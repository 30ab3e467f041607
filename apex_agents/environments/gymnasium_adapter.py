"""Gymnasium environments as `dm_env.Environment`s."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import gymnasium
import numpy as np
from dm_env import specs

from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations, to_number
from apex_agents.environments.opengl import has_display, prepare_opengl
from apex_agents.environments.vector_environment import DEFAULT_FRAMES_PER_SECOND


class GymnasiumEnvironment(dm_env.Environment):
    """A gymnasium environment that follows dm_env's rules.

    A termination is a LAST step with discount 0, a truncation (time limit) a LAST step with
    discount 1. A step before the first reset, or after a LAST step, ignores its action and resets.
    `conversion` and `actions` describe what becomes of observations and actions. An array that has
    its dtype already is not copied: an environment that reuses its arrays does so here, too.

    Attributes:
      frames_per_second: speed of videos, from the environment's metadata.
    """

    def __init__(
        self,
        environment: gymnasium.Env,
        seed: int | None = None,
        max_episode_steps: int | None = None,
    ):
        """Adapt an environment.

        Args:
          environment: the environment.
          seed: seed of the first reset, which decides the later episodes, too.
          max_episode_steps: number of steps after which an episode is truncated; None: no limit
            besides the environment's.

        Raises:
          ValueError: agents cannot handle the observation or the action space, or a wrapper's
            statistics differ between environments.
        """
        _check_wrappers(environment)
        self.frames_per_second = float(
            environment.metadata.get("render_fps") or DEFAULT_FRAMES_PER_SECOND
        )
        self._environment = environment
        self._seed = seed
        self._max_steps = max_episode_steps
        self._observation_spec, self._convert_observation = convert_observations(
            environment.observation_space
        )
        self._action_spec = convert_actions(environment.action_space)
        self._num_steps = 0
        self._needs_reset = True

    def reset(self) -> dm_env.TimeStep:
        observation, _ = _unpack("reset", _RESET, self._environment.reset(seed=self._seed))
        self._seed = None
        self._num_steps = 0
        self._needs_reset = False
        return dm_env.restart(self._convert_observation(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._needs_reset:
            return self.reset()
        action = self._action_spec.to_environment(action)
        returned = self._environment.step(action)
        observation, reward, terminated, truncated, _ = _unpack("step", _STEP, returned)
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, (bool, np.bool_)) and (np.ndim(value) or value not in (0, 1)):
                raise ValueError(f"its `{name}` is {value!r}; it has to be True or False")
        self._num_steps += 1
        truncated = truncated or self._num_steps == self._max_steps
        self._needs_reset = terminated or truncated
        reward, observation = to_number(reward, "reward"), self._convert_observation(observation)
        if terminated:
            return dm_env.termination(reward, observation)
        if truncated:
            return dm_env.truncation(reward, observation)
        return dm_env.transition(reward, observation)

    def observation_spec(self) -> specs.BoundedArray:
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray:
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


_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")


def _unpack(method: str, names: tuple[str, ...], returned: Any) -> tuple[Any, ...]:
    """Return what a method returned; a ValueError says what it has to return, if it is not that."""
    if isinstance(returned, tuple) and len(returned) == len(names):
        return returned
    is_tuple = isinstance(returned, tuple)
    given = f"{len(returned)} values" if is_tuple else f"a {type(returned).__name__}"
    raise ValueError(
        f"its `{method}` returns {given}; it has to return the tuple ({', '.join(names)}), as in "
        "gymnasium and in gym since 0.26"
    )


def make_to_render(make: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Make an environment with render_mode='rgb_array'; a ValueError says that it has no such mode.

    Whatever `make` raises is raised, such as a TypeError if it takes no `render_mode`.
    """
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame would print complaints.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium warns of what raises an error below.
        environment = make(**{**kwargs, "render_mode": "rgb_array"})
    if isinstance(environment, gymnasium.Env):
        modes = environment.metadata.get("render_modes", [])
        if "rgb_array" not in modes:
            environment.close()
            raise ValueError(f"its metadata['render_modes'] is {modes}, without 'rgb_array'")
        if "default_camera_config" not in kwargs:
            _follow_body(environment)
    return environment


def _check_wrappers(environment: Any) -> None:
    """Raise a ValueError for a wrapper with which each environment has another scale."""
    while isinstance(environment, gymnasium.Wrapper):
        is_frozen = not getattr(environment, "update_running_mean", True)
        if _has_running_statistics(environment) and not is_frozen:
            raise ValueError(
                f"its wrapper {type(environment).__name__} scales by running statistics, which "
                "each environment has for itself, those of evaluations too: scale rewards by a "
                "constant, as gymnasium.wrappers.TransformReward can, and observations by "
                "agent.normalize_observations=True. Statistics that are final are accepted with "
                "update_running_mean=False"
            )
        environment = environment.env


def _has_running_statistics(wrapper: gymnasium.Wrapper) -> bool:
    """Return whether a wrapper, or an object that it holds, has a mean, a variance and a count.

    That is what gymnasium's `RunningMeanStd` has, in whatever wrapper it is, and copies of it.
    """
    held = [each for each in vars(wrapper).values() if not isinstance(each, gymnasium.Env)]
    names = {"mean", "var", "count"}
    return any(names <= getattr(holder, "__dict__", {}).keys() for holder in [wrapper, *held])


def _follow_body(environment: gymnasium.Env) -> None:
    """Choose the camera "track" of a MuJoCo model that has one, unless another is chosen."""
    renderer = getattr(environment.unwrapped, "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id < 0:  # Below 0 is the free camera.
        with contextlib.suppress(KeyError):
            renderer.camera_id = renderer.model.camera("track").id
