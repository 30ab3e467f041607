"""Environments that come many at once, as a `gymnasium.vector.VectorEnv`, at their own speed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
from gymnasium import spaces, vector
from gymnasium.vector.utils import iterate

from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations
from apex_agents.environments.info_metrics import InfoMetrics
from apex_agents.environments.masks import MaskedObservationSpec, find_mask, refuse_late_mask
from apex_agents.environments.vector_environment import (
    DEFAULT_FRAMES_PER_SECOND,
    EnvironmentSpec,
    Episode,
    VectorEnvironment,
    name_call,
)

_MODE = "autoreset_mode"
_logger = logging.getLogger(__name__)


class BatchedEnvironment(VectorEnvironment):
    """A `VectorEnvironment` of a `gymnasium.vector.VectorEnv`.

    The next episode begins with the next step (its mode is NEXT_STEP), or at once: by itself
    (SAME_STEP) or when it is told to (DISABLED). At an end, a SAME_STEP environment draws the
    episode that has begun.
    An error of it, or a number that is not finite, is one of all of its environments: it is raised.
    """

    def __init__(
        self,
        environment: vector.VectorEnv,
        seed: int,
        action_mask: str | None = None,
        metrics: Sequence[str] = (),
        step_timeout_seconds: float | None = None,
    ):
        """Begin the first episodes, to look for a mask of legal actions.

        Args:
          environment: the environments.
          seed: seed of the first reset.
          action_mask: see `EnvironmentConfig.action_mask`.
          metrics: see `EnvironmentConfig.metrics`.
          step_timeout_seconds: time after which a step or a reset counts as hanging; None: never.

        Raises:
          ValueError: agents cannot handle its spaces, or it does not say when it resets.
        """
        self._mode = environment.metadata.get(_MODE)
        if self._mode is None:
            _logger.warning(
                "The VectorEnv does not say in its metadata[%r] when episodes begin. NEXT_STEP is "
                "assumed; if it resets at once, a step of each episode is lost.",
                _MODE,
            )
            self._mode = vector.AutoresetMode.NEXT_STEP
        if self._mode not in list(vector.AutoresetMode):
            raise ValueError(
                f"its metadata[{_MODE!r}] is {self._mode!r}; it has to be a member of "
                "gymnasium.vector.AutoresetMode"
            )
        self._environment: Any = environment
        self.num_envs, self.num_failures = environment.num_envs, 0
        fps = environment.metadata.get("render_fps")
        self.frames_per_second = float(fps or DEFAULT_FRAMES_PER_SECOND)
        self._in_reset, self._in_step = (
            name_call("the environments", call, step_timeout_seconds) for call in ("reset", "step")
        )
        with self._in_reset:
            observation, info = environment.reset(seed=seed)
        self._first: tuple[Any, Mapping[str, Any]] | None = (observation, info)
        self._space = environment.single_observation_space
        self._actions: Any = convert_actions(environment.single_action_space)
        found = find_mask(self._space, self._actions, action_mask, lambda: info)
        self._observed, self._convert_row = found or convert_observations(self._space)
        self.spec = EnvironmentSpec(self._observed, self._actions)
        self._mask_in_info = getattr(self._observed, "in_info", False)
        is_missed = found is None and hasattr(self._actions, "num_values")
        self._missed_mask = action_mask if is_missed else None
        self._metrics = [InfoMetrics(metrics) for _ in range(self.num_envs)]
        self.metric_names = self._metrics[0].names
        self._has_metrics = False  # Whether info ever had one.
        self._finished: list[Episode] = []
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, int)
        self._is_over = np.zeros(self.num_envs, bool)
        self._newest: dm_env.TimeStep
        self._next_observations: np.ndarray  # `[E, ...]`, with which SAME_STEP ones begin.

    def reset(self) -> dm_env.TimeStep:
        first, self._first = self._first, None
        if first is None:
            with self._in_reset:
                first = self._environment.reset()
        everything = np.ones(self.num_envs, bool)
        self._begin(everything)
        zeros = np.zeros(self.num_envs, np.float32)
        nothing = ~everything
        observation, info = first
        observations = self._convert(observation, info, nothing)
        return self._make_rows(observations, everything, zeros, nothing, nothing)

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        is_first = self._is_over
        if self._mode != vector.AutoresetMode.NEXT_STEP and is_first.any():
            raise RuntimeError("begin_episodes has to be called before the next step")
        own = self._actions.to_environment(actions)
        if isinstance(self._actions.space, spaces.Tuple):
            own = tuple(own.T)
        with self._in_step:
            observation, reward, terminated, truncated, info = self._environment.step(own)
        refuse_late_mask(self._missed_mask, info)
        columns = {"reward": reward, "terminated": terminated, "truncated": truncated}
        for name, column in columns.items():
            if np.shape(column) != (self.num_envs,):
                shape = np.shape(column)
                raise ValueError(f"{name} has the shape {shape}, not {(self.num_envs,)}")
        self._begin(is_first)
        reward = np.where(is_first, 0.0, np.asarray(reward, np.float64))
        ends = [np.asarray(end, bool) & ~is_first for end in (terminated, truncated)]
        self._returns += reward
        self._lengths += ~is_first
        if self._mode == vector.AutoresetMode.SAME_STEP:
            observations = self._convert_same_step(observation, info, *ends)
        else:
            # The second name is that of gymnasium before 1.0, when all began episodes at once.
            if final := [name for name in ("final_obs", "final_observation") if name in info]:
                raise ValueError(
                    f"info has {final[0]!r}, as with SAME_STEP, but its metadata[{_MODE!r}] is "
                    f"{self._mode}"
                )
            observations = self._convert(observation, info, ends[0])
            self._add_metrics(info, ~is_first)
        rows = self._make_rows(observations, is_first, reward, *ends)
        self._finished += [self.current_episode(i) for i in np.flatnonzero(self._is_over)]
        return rows

    def begin_episodes(self) -> dm_env.TimeStep | None:
        is_first, newest = self._is_over, self._newest
        if self._mode == vector.AutoresetMode.NEXT_STEP or not is_first.any():
            return None
        if self._mode == vector.AutoresetMode.SAME_STEP:
            observations = self._next_observations
        else:
            observations = self._reset_rows(is_first)
        self._begin(is_first)
        reward, nothing = np.where(is_first, 0.0, newest.reward), np.zeros_like(is_first)
        return self._make_rows(observations, is_first, reward, nothing, nothing)

    def current_episode(self, env_index: int) -> Episode:
        i = int(env_index)
        episode_return = float(self._returns[i])
        metrics = self._metrics[i].values()
        return Episode(i, episode_return, episode_return, int(self._lengths[i]), metrics)

    def render(self, env_index: int) -> np.ndarray:
        try:
            frames = self._environment.render()
        except Exception as error:  # It has no `render`, or a library is missing.
            raise ValueError(f"cannot be rendered: {type(error).__name__}: {error}") from error
        if frames is None or len(frames) != self.num_envs:
            raise ValueError("it has to be made with render_mode='rgb_array', and draw each")
        return np.asarray(frames[env_index]).astype(np.uint8)

    def close(self) -> None:
        self._environment.close()

    def _begin(self, rows: np.ndarray) -> None:
        """Begin an episode in some rows, bool `[E]`."""
        self._returns[rows], self._lengths[rows] = 0.0, 0
        for i in np.flatnonzero(rows):
            self._metrics[i].begin()

    def _make_rows(
        self,
        observations: np.ndarray,
        is_first: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> dm_env.TimeStep:
        self._is_over = terminated | truncated
        step_type = np.where(is_first, int(dm_env.StepType.FIRST), int(dm_env.StepType.MID))
        step_type = np.where(self._is_over, int(dm_env.StepType.LAST), step_type)
        rows = dm_env.TimeStep(
            step_type.astype(np.int32),
            reward.astype(np.float32),
            np.where(terminated, 0.0, 1.0).astype(np.float32),
            observations,
        )
        if not (np.isfinite(rows.observation).all() and np.isfinite(rows.reward).all()):
            raise ValueError("an observation or a reward is not finite")
        self._newest = rows
        return rows

    def _convert_same_step(
        self,
        observations: Any,
        info: Mapping[str, Any],
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> np.ndarray:
        """Return the observations at the ends, and keep those with which episodes begin."""
        is_over = terminated | truncated
        self._next_observations = self._convert(observations, info, np.zeros_like(is_over))
        self._add_metrics(info, ~is_over)
        if not is_over.any():
            return self._next_observations
        final, final_info = info.get("final_obs"), info.get("final_info")
        if final is None:
            raise ValueError(
                "its autoreset mode is SAME_STEP, but info has no 'final_obs', the observations at "
                "the ends of episodes"
            )
        if final_info is None and not (self._has_metrics or self._mask_in_info):
            final_info = {}
        if not isinstance(final_info, Mapping):
            raise ValueError(
                "its autoreset mode is SAME_STEP, so that info['final_info'] has to be a dict of "
                f"arrays, info at the ends of episodes; it is a {type(final_info).__name__}"
            )
        self._add_metrics(final_info, is_over)
        if not isinstance(final, np.ndarray):
            final = list(iterate(self._environment.observation_space, final))
        converted, is_box = self._next_observations.copy(), isinstance(self._space, spaces.Box)
        for i in np.flatnonzero(is_over):
            # NumPy makes an array of objects of arrays if all episodes end at once.
            row = np.asarray(final[i], self._space.dtype) if is_box else final[i]
            converted[i] = self._convert_one(i, row, final_info, terminated)
        return converted

    def _reset_rows(self, rows: np.ndarray) -> np.ndarray:
        """Reset some environments, bool `[E]`, and return the observations of all, `[E, ...]`."""
        with self._in_reset:
            first, info = self._environment.reset(options={"reset_mask": rows.copy()})
        newest, nothing = self._newest.observation, np.zeros_like(rows)
        spec = self._observed
        if self._mask_in_info:  # The masks of the others are not there now, and stay the same.
            own = list(iterate(self._environment.observation_space, first))
            kept = np.stack([self._convert_row(row) for row in own])
            before = spec.split(newest)[0]
            observations = newest.copy()
            for i in np.flatnonzero(rows):
                observations[i] = self._convert_one(i, own[i], info, nothing)
        else:
            observations = kept = self._convert(first, info, nothing)
            before = newest
        if not np.array_equal(kept[~rows], before[~rows]):
            raise ValueError(
                "its autoreset mode is DISABLED, but reset(options={'reset_mask': ...}) returns "
                "other observations for environments outside of the mask than the step before"
            )
        return observations

    def _convert_one(
        self, i: int, observation: Any, info: Mapping[str, Any], terminated: np.ndarray
    ) -> np.ndarray:
        """Convert the observation of environment i, given what all of them have."""
        spec = self._observed
        if not isinstance(spec, MaskedObservationSpec):
            return self._convert_row(observation)
        masks = info.get(spec.mask)
        own = {} if masks is None else {spec.mask: masks[i]}
        return spec.read(observation, own, self._convert_row, bool(terminated[i]))

    def _convert(
        self, observations: Any, info: Mapping[str, Any], terminated: np.ndarray
    ) -> np.ndarray:
        spec, space = self._observed, self._space
        if isinstance(spec, MaskedObservationSpec):
            rows = enumerate(iterate(self._environment.observation_space, observations))
            return np.stack([self._convert_one(i, row, info, terminated) for i, row in rows])
        if isinstance(space, spaces.Box):
            array = np.asarray(observations)
            if array.shape != (self.num_envs, *space.shape):
                expected = (self.num_envs, *space.shape)
                raise ValueError(f"observations have the shape {array.shape}, not {expected}")
            if array.dtype == space.dtype or space.dtype.kind == array.dtype.kind == "f":
                return array.reshape([-1, *spec.shape]).astype(spec.dtype)
        if isinstance(space, spaces.Discrete):
            places = np.asarray(observations) - space.start
            one_hot = places[:, np.newaxis] == np.arange(space.n)
            if one_hot.any(axis=1).all():
                return one_hot.astype(np.float32)
        # One by one, where each is compared with its space.
        several = iterate(self._environment.observation_space, observations)
        return np.stack([self._convert_row(row) for row in several])

    def _add_metrics(self, info: Mapping[str, Any], rows: np.ndarray) -> None:
        everywhere = np.ones(self.num_envs, bool)
        found = self._metrics[0].keys & info.keys()
        self._has_metrics |= bool(found)
        for key in found:
            for i in np.flatnonzero(rows & info.get(f"_{key}", everywhere)):
                self._metrics[i].add({key: info[key][i]})
