"""Environments stepped in lock-step, so that one network evaluation serves all of them.

An environment is one environment with its own seed and its own episodes. The environments of a
group advance by one time step per call, whatever stage of its episode each of them is at.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import dm_env
import numpy as np
from dm_env import specs


class EnvironmentSpec(NamedTuple):
    """The specs of one environment, without the batch axis; as `acme.specs.EnvironmentSpec`."""

    observations: specs.Array
    actions: specs.BoundedArray
    rewards: specs.Array
    discounts: specs.BoundedArray


class Episode(NamedTuple):
    """What is reported about a finished episode.

    Attributes:
      env_index: index of the environment that played it.
      episode_return: sum of the rewards as the environment gave them.
      clipped_return: sum of the rewards as the agent saw them.
      length: number of agent steps.
    """

    env_index: int
    episode_return: float
    clipped_return: float
    length: int


class VectorEnvironment(Protocol):
    """A group of E environments.

    Both `reset` and `step` return a batched `dm_env.TimeStep`: `step_type` int32 `[E]`, `reward`
    `[E]`, `discount` `[E]`, `observation` `[E, ...]` in the dtype of the spec. A FIRST row has
    reward 0 and discount 1; a LAST row has discount 0 after a termination and 1 after a truncation.
    The arrays are new ones at every call: later calls do not write into them.

    Attributes:
      num_envs: E.
      spec: of one environment.
      num_failures: times an environment failed, upon which its environment began another episode.
      frames_per_second: agent steps per second at the speed of the game, for videos.
    """

    num_envs: int
    num_failures: int
    frames_per_second: float
    spec: EnvironmentSpec

    def reset(self) -> dm_env.TimeStep:
        """Start a new episode in every environment, forgetting the unfinished ones."""

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Advance every environment by one time step.

        Args:
          actions: `[E]` int or `[E, D]`. An environment whose previous step was LAST ignores its
            action and returns the FIRST step of its next episode.
        """

    def finished_episodes(self) -> list[Episode]:
        """Return the episodes finished since the previous call, in order, and forget them."""

    def current_episode(self, env_index: int) -> Episode:
        """Return the episode of an environment so far; one that has just finished counts."""

    def render(self, env_index: int) -> np.ndarray:
        """Draw what an environment shows now, which changes nothing of what it plays.

        Args:
          env_index: one of those that the environments were made to render.

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


class LockStepEnvironment:
    """Environments made of ordinary environments, stepped one after the other.

    Observations are copied out of the environments, which may thus reuse their arrays. When one of
    them raises, or returns an observation or a reward that is not finite, its environment begins
    another episode with a FIRST step and leaves the one before without a LAST; when that happens
    `MAX_FAILURES_IN_A_ROW` times without a good step in between, the error is raised.
    """

    def __init__(self, environments: Sequence[dm_env.Environment]):
        """Initialize the environments.

        Args:
          environments: E environments with equal specs; they are closed with the environments.

        Raises:
          ValueError: there is no environment, or one has other specs than the first.
        """
        if not environments:
            raise ValueError("environments must hold at least one environment, got none")
        self._environments = list(environments)
        self.num_envs = len(self._environments)
        self.spec = _make_spec(self._environments[0])
        for env_index, environment in enumerate(self._environments):
            spec = _make_spec(environment)
            if spec != self.spec:
                raise ValueError(
                    f"environment {env_index} has {spec}, unlike environment 0: {self.spec}"
                )
        self._observation_shape = (self.num_envs, *self.spec.observations.shape)
        self._observation_dtype = self.spec.observations.dtype
        self.frames_per_second = getattr(environments[0], "frames_per_second", FRAMES_PER_SECOND)
        self._returns = [0.0] * self.num_envs
        self._lengths = [0] * self.num_envs
        self._finished: list[Episode] = []
        self.num_failures = 0
        self._failures_in_a_row = [0] * self.num_envs

    def reset(self) -> dm_env.TimeStep:
        """Reset every environment; see `VectorEnvironment.reset`."""
        rows = self._make_rows()
        for env_index, environment in enumerate(self._environments):
            self._record(rows, env_index, environment.reset())
        return rows

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Step every environment; see `VectorEnvironment.step`."""
        rows = self._make_rows()
        for env_index, environment in enumerate(self._environments):
            try:
                timestep = environment.step(actions[env_index])
                _check_finite(timestep)
                self._failures_in_a_row[env_index] = 0
            except Exception as error:  # Whatever it is: the other environments go on.
                self._count_failure(env_index, error)
                timestep = environment.reset()
            self._record(rows, env_index, timestep)
        return rows

    def finished_episodes(self) -> list[Episode]:
        """Return the episodes finished since the previous call; see `VectorEnvironment`."""
        finished, self._finished = self._finished, []
        return finished

    def current_episode(self, env_index: int) -> Episode:
        """Return how far an environment's episode is; see `VectorEnvironment.current_episode`."""
        total = self._returns[env_index]
        return Episode(env_index, total, total, self._lengths[env_index])

    def render(self, env_index: int) -> np.ndarray:
        """Call the environment's own `render`; see `VectorEnvironment.render`."""
        render = getattr(self._environments[env_index], "render", None)
        if render is None:
            raise ValueError(f"{type(self._environments[env_index]).__name__} has no `render`")
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

    def _count_failure(self, env_index: int, error: Exception) -> None:
        self.num_failures += 1
        self._failures_in_a_row[env_index] += 1
        if self._failures_in_a_row[env_index] == MAX_FAILURES_IN_A_ROW:
            raise error
        _logger.warning(
            "Environment %d begins another episode: %s: %s", env_index, type(error).__name__, error
        )

    def _make_rows(self) -> dm_env.TimeStep:
        return dm_env.TimeStep(
            step_type=np.empty(self.num_envs, np.int32),
            reward=np.empty(self.num_envs, np.float32),
            discount=np.empty(self.num_envs, np.float32),
            observation=np.empty(self._observation_shape, self._observation_dtype),
        )

    def _record(self, rows: dm_env.TimeStep, env_index: int, time_step: dm_env.TimeStep) -> None:
        """Write the step of one environment into its row, and count it."""
        step_type, reward, discount, observation = time_step
        rows.step_type[env_index] = step_type
        rows.observation[env_index] = observation
        if step_type is dm_env.StepType.FIRST:
            rows.reward[env_index] = 0.0
            rows.discount[env_index] = 1.0
            self._returns[env_index] = 0.0
            self._lengths[env_index] = 0
            return
        rows.reward[env_index] = reward
        rows.discount[env_index] = discount
        self._returns[env_index] += float(reward)
        self._lengths[env_index] += 1
        if step_type is dm_env.StepType.LAST:
            self._finished.append(self.current_episode(env_index))


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
