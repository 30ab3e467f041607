"""Environments of gymnasium and of dm_env, as agents see and step them."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations, space_of, to_number
from apex_agents.environments.info_metrics import InfoMetrics
from apex_agents.environments.masks import (
    DEFAULT_MASK,
    MaskedObservationSpec,
    find_mask,
    refuse_late_mask,
)
from apex_agents.environments.opengl import has_display, prepare_opengl
from apex_agents.environments.vector_environment import (
    DEFAULT_FRAMES_PER_SECOND,
    MAX_FAILURES_IN_A_ROW,
)

_ENVIRONMENTS = (gymnasium.Env, gymnasium.vector.VectorEnv)


def adapt(
    environment: Any,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    action_mask: str | None = DEFAULT_MASK,
    metrics: Sequence[str] = (),
) -> AdaptedEnvironment:
    """Return an environment of gymnasium or dm_env with the observations and actions of agents.

    A termination is a LAST step with discount 0, a truncation (time limit) a LAST step with
    discount 1; dm_env environments may have any discount in [0, 1]. A step before the first reset,
    or after a LAST step, ignores its action and resets. `conversion` and `actions` describe how
    observations and actions are converted. An array that has its dtype already is not copied: an
    environment that reuses its arrays does so here, too.

    Args:
      environment: a `gymnasium.Env` or a `dm_env.Environment`.
      seed: seed of the first reset of a `gymnasium.Env`, which decides the later episodes, too.
      max_episode_steps: number of steps after which an episode is truncated; None: no limit besides
        the environment's.
      action_mask: name of the mask of legal actions, which joins the observations; see
        `AdaptedEnvironment.use_mask`.
      metrics: numbers in `info` that episodes report, as in `EnvironmentConfig`.

    Raises:
      TypeError: it is neither of them.
      ValueError: agents cannot handle the observations or the actions, or the statistics of a
        wrapper differ between environments.
    """
    if isinstance(environment, gymnasium.Env):
        check_wrappers(environment)
        environment = _GymnasiumSteps(environment, seed)
    elif not isinstance(environment, dm_env.Environment):
        kind = type(environment).__name__
        are_many = isinstance(environment, gymnasium.vector.VectorEnv)
        hint = "; many at once are given by a function with an argument num_envs" * are_many
        raise TypeError(f"it is a {kind}, neither a gymnasium.Env nor a dm_env.Environment{hint}")
    adapted = AdaptedEnvironment(environment, max_episode_steps, metrics)
    adapted.use_mask(action_mask)
    return adapted


class AdaptedEnvironment(dm_env.Environment):
    """A dm_env environment with observations and actions as agents have them.

    Attributes:
      frames_per_second: speed of videos, the environment's own where it has this attribute.
      metric_names: names of `episode_metrics`; none for dm_env, which has no `info`.
    """

    def __init__(
        self, environment: Any, max_episode_steps: int | None, metrics: Sequence[str] = ()
    ):
        self._environment = environment
        has_info = isinstance(environment, _GymnasiumSteps)
        if metrics and not has_info:
            raise ValueError(f"environment.metrics are {[*metrics]}, but dm_env has no `info`")
        self._metrics = InfoMetrics(metrics) if has_info else None
        self.metric_names = self._metrics.names if self._metrics else ()
        self._max_steps = max_episode_steps
        self._space = space_of(environment.observation_spec(), "observation")
        self._observation_spec, self._convert_observation = convert_observations(self._space)
        self._action_spec = convert_actions(space_of(environment.action_spec(), "action"))
        self.frames_per_second = getattr(
            environment, "frames_per_second", DEFAULT_FRAMES_PER_SECOND
        )
        self._num_steps = 0
        self._needs_reset = True
        self._missed_mask: str | None = None  # Name of a mask that the first reset did not give.

    def use_mask(self, name: str | None) -> None:
        """Join the mask of legal actions with the observations, if there is one.

        It is an entry of a Dict observation, or of `info`. To look there, gymnasium environments
        are reset, to the state with which their first episode begins.

        Args:
          name: name of the mask; None for no mask.

        Raises:
          ValueError: there is no such mask, unless the name is the usual one.
        """
        find_info = getattr(self._environment, "first_info", dict)
        found = find_mask(self._space, self._action_spec, name, find_info)
        if found is not None:
            self._observation_spec, self._convert_observation = found
        elif isinstance(self._action_spec, specs.DiscreteArray):
            self._missed_mask = name

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

    def episode_metrics(self) -> tuple[tuple[str, float], ...]:
        """Return names and values of the metrics that the episode has so far."""
        return self._metrics.values() if self._metrics else ()

    def render(self) -> np.ndarray:
        """Let the environment draw itself, if it has a method `render` that returns the frame."""
        return np.asarray(self._environment.render())

    def close(self) -> None:
        self._environment.close()

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if not isinstance(timestep, dm_env.TimeStep):
            kind = type(timestep).__name__
            raise ValueError(f"it returns a {kind}; it has to return a dm_env.TimeStep")
        step_type, reward, discount, observation = timestep
        is_first = timestep.first()
        self._num_steps = 0 if is_first else self._num_steps + 1
        if self._num_steps == self._max_steps:
            step_type = dm_env.StepType.LAST
        self._needs_reset = step_type == dm_env.StepType.LAST
        if not is_first:  # Reward and discount of a FIRST step are not read.
            reward, discount = to_number(reward, "reward"), to_number(discount, "discount")
        if self._metrics:
            self._read_info(is_first)
        row = self._read_observation(observation, self._needs_reset and discount == 0)
        return dm_env.TimeStep(step_type, reward, discount, row)

    def _read_info(self, is_first: bool) -> None:
        """Take the metrics of a step.

        Raises:
          ValueError: there is a mask of legal actions, although the first reset had none.
        """
        assert self._metrics is not None
        info = self._environment.info if isinstance(self._environment.info, Mapping) else {}
        if is_first:
            self._metrics.begin()
        else:
            self._metrics.add(info)
        refuse_late_mask(self._missed_mask, info)

    def _read_observation(self, observation: Any, is_terminal: bool) -> np.ndarray:
        spec = self._observation_spec
        if not isinstance(spec, MaskedObservationSpec):
            return self._convert_observation(observation)
        info = self._environment.info if spec.in_info else None
        return spec.read(observation, info, self._convert_observation, is_terminal)


class _GymnasiumSteps(dm_env.Environment):
    """A gymnasium environment with the methods of dm_env, which has spaces in place of specs."""

    def __init__(self, environment: gymnasium.Env, seed: int | None):
        self._environment = environment
        self._seed = seed
        self._first: dm_env.TimeStep | None = None
        self.info: Mapping[str, Any] = {}
        fps = environment.metadata.get("render_fps")
        self.frames_per_second = float(fps or DEFAULT_FRAMES_PER_SECOND)

    def first_info(self) -> Mapping[str, Any]:
        """Begin the first episode, and return what the reset gave; `reset` does not repeat it.

        If it fails, it is tried again, as often as a reset may fail in a row.
        """
        for attempt in range(1, MAX_FAILURES_IN_A_ROW + 1):
            try:
                self._first = self.reset()
                break
            except Exception:
                if attempt == MAX_FAILURES_IN_A_ROW:
                    raise
        return self.info if isinstance(self.info, Mapping) else {}

    def reset(self) -> dm_env.TimeStep:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        seed = self._seed
        if seed is not None:  # If this reset fails, the next one does not draw the same episode.
            self._seed = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
        returned = self._environment.reset(seed=seed)
        observation, self.info = _unpack("reset", ("observation", "info"), returned)
        self._seed = None
        return dm_env.restart(observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        names = ("observation", "reward", "terminated", "truncated", "info")
        observation, reward, terminated, truncated, self.info = _unpack(
            "step", names, self._environment.step(action)
        )
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, (bool, np.bool_)) and (np.ndim(value) or value not in (0, 1)):
                raise ValueError(f"its `{name}` is {value!r}; it has to be True or False")
        if terminated:
            return dm_env.termination(reward, observation)
        make_step = dm_env.truncation if truncated else dm_env.transition
        return make_step(reward, observation)

    def observation_spec(self) -> spaces.Space:
        return self._environment.observation_space

    def action_spec(self) -> spaces.Space:
        return self._environment.action_space

    def render(self) -> Any:
        """Let the environment draw itself.

        Raises:
          ValueError: the environment was not made to be drawn, or MuJoCo cannot draw.
        """
        if self._environment.render_mode != "rgb_array":
            raise ValueError(f"{self._environment} was not made with render_mode='rgb_array'")
        if hasattr(self._environment.unwrapped, "mujoco_renderer"):
            prepare_opengl()
        return self._environment.render()

    def close(self) -> None:
        self._environment.close()


def _unpack(method: str, names: tuple[str, ...], returned: Any) -> tuple[Any, ...]:
    """Check the number of values that a method has returned; a ValueError names the right ones."""
    if isinstance(returned, tuple) and len(returned) == len(names):
        return returned
    is_tuple = isinstance(returned, tuple)
    given = f"{len(returned)} values" if is_tuple else f"a {type(returned).__name__}"
    raise ValueError(
        f"its `{method}` returns {given}; it has to return the tuple ({', '.join(names)}), as in "
        "gymnasium and in gym since 0.26"
    )


def check_wrappers(environment: Any) -> None:
    """Raise a ValueError for a wrapper with which each environment has a different scale."""
    while isinstance(environment, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        is_frozen = not getattr(environment, "update_running_mean", True)
        # A mean, a variance and a count are what gymnasium's `RunningMeanStd` has, and copies of it
        # have them in whatever wrapper they are.
        held = [each for each in vars(environment).values() if not isinstance(each, _ENVIRONMENTS)]
        names = {"mean", "var", "count"}
        has_statistics = any(
            names <= getattr(each, "__dict__", {}).keys() for each in [environment, *held]
        )
        if has_statistics and not is_frozen:
            _refuse_statistics(f"its wrapper {type(environment).__name__} keeps")
        environment = environment.env
    if isinstance(environment, gymnasium.vector.VectorEnv):
        for one in getattr(environment, "envs", ()):  # Those of a `SyncVectorEnv`.
            check_wrappers(one)
    if isinstance(environment, gymnasium.vector.AsyncVectorEnv):
        # In other processes gymnasium's own wrappers alone can be told, by these names.
        named = {
            name: all(environment.call("has_wrapper_attr", name))
            for name in ("obs_rms", "return_rms", "update_running_mean")
        }
        is_frozen = named["update_running_mean"] and not any(
            environment.call("update_running_mean")
        )
        if (named["obs_rms"] or named["return_rms"]) and not is_frozen:
            _refuse_statistics("its environments keep")


def _refuse_statistics(what: str) -> NoReturn:
    raise ValueError(
        f"{what} running statistics, which other actors do not share and which start "
        "empty in evaluations: scale rewards by a constant, as gymnasium.wrappers.TransformReward "
        "can, and observations by agent.normalize_observations=True. Statistics that are final are "
        "accepted with update_running_mean=False"
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
        renderer: Any = getattr(environment.unwrapped, "mujoco_renderer", None)
        is_free = renderer is not None and renderer.camera_id < 0
        if is_free and "default_camera_config" not in kwargs:
            with contextlib.suppress(KeyError):  # The model has no camera that follows its body.
                renderer.camera_id = renderer.model.camera("track").id
    return environment
