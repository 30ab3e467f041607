"""Lanes: several environments stepped together, so that one network evaluation serves them all.

A lane is one environment with its own seed and its own episodes. The lanes of a group advance by
one time step per call, whatever stage of its episode each of them is at.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import dm_env
import numpy as np
from dm_env import specs


class EnvironmentSpec(NamedTuple):
    """The specs of one lane, without a lane axis; same fields as `acme.specs.EnvironmentSpec`."""

    observations: specs.Array
    actions: specs.BoundedArray
    rewards: specs.Array
    discounts: specs.BoundedArray


class Episode(NamedTuple):
    """What is reported about a finished episode.

    Attributes:
      lane: index of the lane that played it.
      episode_return: sum of the rewards as the environment gave them.
      clipped_return: sum of the rewards as the agent saw them.
      length: number of agent steps.
    """

    lane: int
    episode_return: float
    clipped_return: float
    length: int


class Lanes(Protocol):
    """A group of L lanes.

    Both `reset` and `step` return a batched `dm_env.TimeStep`: `step_type` int32 `[L]`, `reward`
    `[L]`, `discount` `[L]`, `observation` `[L, ...]` in the dtype of the spec. A FIRST row has
    reward 0 and discount 1; a LAST row has discount 0 after a termination and 1 after a truncation.
    The arrays are new ones at every call: later calls do not write into them.

    Attributes:
      num_lanes: L.
      spec: of one lane.
      num_failures: times an environment failed, upon which its lane began another episode.
      frames_per_second: agent steps per second at the speed of the game, for videos.
    """

    num_lanes: int
    num_failures: int
    frames_per_second: float
    spec: EnvironmentSpec

    def reset(self) -> dm_env.TimeStep:
        """Start a new episode in every lane, forgetting the unfinished ones."""

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Advance every lane by one time step.

        Args:
          actions: `[L]` int or `[L, D]`. A lane whose previous step was LAST ignores its action
            and returns the FIRST step of its next episode.
        """

    def finished_episodes(self) -> list[Episode]:
        """Return the episodes finished since the previous call, in order, and forget them."""

    def current_episode(self, lane: int) -> Episode:
        """Return how far the episode of a lane is; one that has just finished still counts."""

    def render(self, lane: int) -> np.ndarray:
        """Draw what a lane shows now, which changes nothing of what it plays.

        Args:
          lane: one of those that the lanes were made to render.

        Returns:
          uint8 `[H, W, 3]`, RGB.

        Raises:
          ValueError: it cannot be drawn; says why.
        """

    def close(self) -> None:
        """Release what the environments hold."""


MAX_FAILURES_IN_A_ROW = 3
# Of environments that do not say.
FRAMES_PER_SECOND = 15.0

_logger = logging.getLogger(__name__)


class LockStepLanes:
    """Lanes made of ordinary environments, stepped one after the other.

    Observations are copied out of the environments, which may thus reuse their arrays. When one of
    them raises, or returns an observation or a reward that is not finite, its lane begins another
    episode with a FIRST step and leaves the one before without a LAST; when that happens
    `MAX_FAILURES_IN_A_ROW` times without a good step in between, the error is raised.
    """

    def __init__(self, environments: Sequence[dm_env.Environment]):
        """Initialize the lanes.

        Args:
          environments: L environments with equal specs; they are closed with the lanes.

        Raises:
          ValueError: there is no environment, or one has other specs than the first.
        """
        if not environments:
            raise ValueError("environments must hold at least one environment, got none")
        self._environments = list(environments)
        self.num_lanes = len(self._environments)
        self.spec = _make_spec(self._environments[0])
        for lane, environment in enumerate(self._environments):
            spec = _make_spec(environment)
            if spec != self.spec:
                raise ValueError(f"lane {lane} has {spec}, which differs from lane 0: {self.spec}")
        self._observation_shape = (self.num_lanes, *self.spec.observations.shape)
        self._observation_dtype = self.spec.observations.dtype
        self.frames_per_second = getattr(environments[0], "frames_per_second", FRAMES_PER_SECOND)
        self._returns = [0.0] * self.num_lanes
        self._lengths = [0] * self.num_lanes
        self._finished: list[Episode] = []
        self.num_failures = 0
        self._failures_in_a_row = [0] * self.num_lanes

    def reset(self) -> dm_env.TimeStep:
        """Reset every environment; see `Lanes.reset`."""
        rows = self._make_rows()
        for lane, environment in enumerate(self._environments):
            self._record(rows, lane, environment.reset())
        return rows

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Step every environment; see `Lanes.step`."""
        rows = self._make_rows()
        for lane, environment in enumerate(self._environments):
            try:
                timestep = environment.step(actions[lane])
                _check_finite(timestep)
                self._failures_in_a_row[lane] = 0
            except Exception as error:  # Whatever it is: the other lanes go on.
                self._count_failure(lane, error)
                timestep = environment.reset()
            self._record(rows, lane, timestep)
        return rows

    def finished_episodes(self) -> list[Episode]:
        """Return the episodes finished since the previous call; see `Lanes.finished_episodes`."""
        finished, self._finished = self._finished, []
        return finished

    def current_episode(self, lane: int) -> Episode:
        """Return how far a lane's episode is; see `Lanes.current_episode`."""
        total = self._returns[lane]
        return Episode(lane, total, total, self._lengths[lane])

    def render(self, lane: int) -> np.ndarray:
        """Call the environment's own `render`; see `Lanes.render`."""
        render = getattr(self._environments[lane], "render", None)
        if render is None:
            raise ValueError(f"{type(self._environments[lane]).__name__} has no `render`")
        try:
            frame = np.asarray(render())
        except ValueError:
            raise
        except Exception as error:  # Of a library that is not there, or finds no OpenGL.
            raise ValueError(f"cannot be rendered: {type(error).__name__}: {error}") from error
        if frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(f"a frame has to be RGB, [H, W, 3], got {frame.shape}")
        return frame.astype(np.uint8, copy=True)

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            environment.close()

    def _count_failure(self, lane: int, error: Exception) -> None:
        self.num_failures += 1
        self._failures_in_a_row[lane] += 1
        if self._failures_in_a_row[lane] == MAX_FAILURES_IN_A_ROW:
            raise error
        _logger.warning("Lane %d begins another episode: %s: %s", lane, type(error).__name__, error)

    def _make_rows(self) -> dm_env.TimeStep:
        return dm_env.TimeStep(
            step_type=np.empty(self.num_lanes, np.int32),
            reward=np.empty(self.num_lanes, np.float32),
            discount=np.empty(self.num_lanes, np.float32),
            observation=np.empty(self._observation_shape, self._observation_dtype),
        )

    def _record(self, rows: dm_env.TimeStep, lane: int, time_step: dm_env.TimeStep) -> None:
        """Write the step of one environment into its row, and count it."""
        step_type, reward, discount, observation = time_step
        rows.step_type[lane] = step_type
        rows.observation[lane] = observation
        if step_type is dm_env.StepType.FIRST:
            rows.reward[lane] = 0.0
            rows.discount[lane] = 1.0
            self._returns[lane] = 0.0
            self._lengths[lane] = 0
            return
        rows.reward[lane] = reward
        rows.discount[lane] = discount
        self._returns[lane] += float(reward)
        self._lengths[lane] += 1
        if step_type is dm_env.StepType.LAST:
            self._finished.append(self.current_episode(lane))


def _check_finite(timestep: dm_env.TimeStep) -> None:
    """Raise a ValueError if a number that would be learned from is NaN or infinite."""
    if not np.isfinite(timestep.observation).all():
        raise ValueError("the observation is not finite")
    if timestep.reward is not None and not np.isfinite(timestep.reward):
        raise ValueError(f"the reward is {timestep.reward}")


def _make_spec(environment: dm_env.Environment) -> EnvironmentSpec:
    return EnvironmentSpec(
        observations=environment.observation_spec(),
        actions=environment.action_spec(),
        rewards=environment.reward_spec(),
        discounts=environment.discount_spec(),
    )
