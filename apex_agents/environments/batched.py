"""Environments that come many at once, as a `gymnasium.vector.VectorEnv`, at their own speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
from gymnasium import spaces, vector
from gymnasium.vector.utils import iterate

from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations
from apex_agents.environments.info_metrics import InfoMetrics
from apex_agents.environments.masks import MaskedObservationSpec, find_mask
from apex_agents.environments.vector_environment import (
    DEFAULT_FRAMES_PER_SECOND,
    EnvironmentSpec,
    Episode,
    name_call,
)

_MODE = "autoreset_mode"


class BatchedEnvironment:
    """A `VectorEnvironment` of a `gymnasium.vector.VectorEnv` that resets at the step after an end.

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
          ValueError: agents cannot handle its spaces, or it resets at another time.
        """
        mode = environment.metadata.get(_MODE, vector.AutoresetMode.NEXT_STEP)
        if mode != vector.AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"its metadata[{_MODE!r}] is {mode}; it has to be AutoresetMode.NEXT_STEP, where "
                "the step after an end ignores its action and begins the next episode"
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
        self._metrics = [InfoMetrics(metrics) for _ in range(self.num_envs)]
        self.metric_names = self._metrics[0].names
        self._finished: list[Episode] = []
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, int)
        self._is_over = np.zeros(self.num_envs, bool)

    def reset(self) -> dm_env.TimeStep:
        first, self._first = self._first, None
        if first is None:
            with self._in_reset:
                first = self._environment.reset()
        everything = np.ones(self.num_envs, bool)
        self._begin(everything)
        zeros = np.zeros(self.num_envs, np.float32)
        observation, info = first
        nothing = ~everything
        return self._make_rows(observation, info, everything, zeros, nothing, nothing)

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        is_first = self._is_over
        own = self._actions.to_environment(actions)
        if isinstance(self._actions.space, spaces.Tuple):
            own = tuple(own.T)
        with self._in_step:
            observation, reward, terminated, truncated, info = self._environment.step(own)
        self._begin(is_first)
        reward = np.where(is_first, 0.0, np.asarray(reward, np.float64))
        ends = [np.asarray(end, bool) & ~is_first for end in (terminated, truncated)]
        self._returns += reward
        self._lengths += ~is_first
        self._add_metrics(info, ~is_first)
        rows = self._make_rows(observation, info, is_first, reward, *ends)
        self._finished += [self.current_episode(i) for i in np.flatnonzero(self._is_over)]
        return rows

    def pause(self, env_index: int) -> None:
        """Do nothing: all are stepped together."""

    def finished_episodes(self) -> list[Episode]:
        finished, self._finished = self._finished, []
        return finished

    def current_episode(self, env_index: int) -> Episode:
        i = int(env_index)
        episode_return = float(self._returns[i])
        metrics = self._metrics[i].values()
        return Episode(i, episode_return, episode_return, int(self._lengths[i]), metrics)

    def render(self, env_index: int) -> np.ndarray:
        frames = self._environment.render()
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
        observation: Any,
        info: Mapping[str, Any],
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
            self._convert(observation, info, terminated),
        )
        if not (np.isfinite(rows.observation).all() and np.isfinite(rows.reward).all()):
            raise ValueError("an observation or a reward is not finite")
        return rows

    def _convert(
        self, observations: Any, info: Mapping[str, Any], terminated: np.ndarray
    ) -> np.ndarray:
        spec, space = self._observed, self._space
        if isinstance(spec, MaskedObservationSpec):
            rows = iterate(self._environment.observation_space, observations)
            masks = info.get(spec.mask)
            infos = [{} if masks is None else {spec.mask: masks[i]} for i in range(self.num_envs)]
            taken = zip(rows, infos, terminated, strict=True)
            return np.stack(
                [spec.read(row, own, self._convert_row, is_end) for row, own, is_end in taken]
            )
        if isinstance(space, spaces.Box):
            array = np.asarray(observations)
            if array.shape != (self.num_envs, *space.shape):
                expected = (self.num_envs, *space.shape)
                raise ValueError(f"observations have the shape {array.shape}, not {expected}")
            return array.reshape([-1, *spec.shape]).astype(spec.dtype)
        if isinstance(space, spaces.Discrete):
            places = np.asarray(observations) - space.start
            return (places[:, np.newaxis] == np.arange(space.n)).astype(np.float32)
        several = iterate(self._environment.observation_space, observations)
        return np.stack([self._convert_row(row) for row in several])

    def _add_metrics(self, info: Mapping[str, Any], rows: np.ndarray) -> None:
        everywhere = np.ones(self.num_envs, bool)
        for key in self._metrics[0].keys & info.keys():
            for i in np.flatnonzero(rows & info.get(f"_{key}", everywhere)):
                self._metrics[i].add({key: info[key][i]})
