"""Several environments stepped together, so that one network evaluation serves all of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.waits import Waiting


class EnvironmentSpec(NamedTuple):
    """The specs of one environment, without the batch axis; as `acme.specs.EnvironmentSpec`."""

    observations: specs.Array
    actions: specs.BoundedArray
    rewards: specs.Array = specs.Array((), np.float32, "reward")
    discounts: specs.BoundedArray = specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")


class Episode(NamedTuple):
    """The report of an episode."""

    env_index: int  # Index of the environment in which it was played.
    episode_return: float  # Sum of the rewards as the environment gave them.
    clipped_return: float  # Sum of the rewards as the agent received them.
    length: int  # Number of agent steps.
    metrics: tuple[tuple[str, float], ...] = ()  # Names and numbers of `info` that it had.


class VectorEnvironment(Protocol):
    """E environments, each with its own seed and episodes, that are stepped together.

    Both `reset` and `step` return a batched `dm_env.TimeStep`: `step_type` int32 `[E]`, `reward`
    `[E]`, `discount` `[E]`, `observation` `[E, ...]` in the dtype of the spec. A FIRST row has
    reward 0 and discount 1; a LAST row has discount 0 after a termination and 1 after a truncation.
    The arrays of a returned time step are new at every call and are never modified: callers may
    keep them.

    Attributes:
      num_envs: number of environments, E.
      num_failures: number of times that an environment failed and began another episode.
      frames_per_second: agent steps per second at the speed of the game, for videos.
      spec: specification of one environment.
    """

    num_envs: int
    num_failures: int
    frames_per_second: float
    spec: EnvironmentSpec
    _finished: list[Episode]  # Until the next `finished_episodes`.

    def reset(self) -> dm_env.TimeStep:
        """Start a new episode in every environment; unfinished ones are not reported."""

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Advance every environment by one time step.

        Args:
          actions: `[E]` int or `[E, D]`. An environment whose previous step was LAST ignores its
            action and returns the FIRST step of its next episode, unless `begin_episodes` did.
        """

    def begin_episodes(self) -> dm_env.TimeStep | None:
        """Begin the next episodes at once where the newest step was LAST, if they can do this.

        Returns:
          The newest time step with FIRST rows in the place of the LAST ones, the others unchanged;
          None if there is no end, or if the next `step` begins the episodes.
        """
        return None

    def pause(self, env_index: int) -> None:
        """Stop stepping a finished environment until `reset`, where supported.

        Its rows then have a reward of 0 and any observation.
        """
        return None

    def finished_episodes(self) -> list[Episode]:
        """Return the episodes finished since the previous call, in order, and forget them."""
        finished, self._finished = self._finished, []
        return finished

    def current_episode(self, env_index: int) -> Episode:
        """Report an environment's episode up to now; after its LAST step this is all of it."""

    def render(self, env_index: int) -> np.ndarray:
        """Draw the current state of an environment, uint8 `[H, W, 3]`, without a change of it.

        Raises:
          ValueError: the environment cannot be drawn; says why.
        """

    def close(self) -> None:
        """Release the resources of all environments."""


def restart_batch(observation: np.ndarray) -> dm_env.TimeStep:
    """Return the time step with which an episode begins in each environment, as `dm_env.restart`.

    Args:
      observation: `[E, ...]`, the first observations.
    """
    num_envs = len(observation)
    return dm_env.TimeStep(
        step_type=np.full(num_envs, dm_env.StepType.FIRST, np.int32),
        reward=np.zeros(num_envs, np.float32),
        discount=np.ones(num_envs, np.float32),
        observation=observation,
    )


def make_batch(timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    """Return the time step of a single environment as a batch, whose arrays do not change later.

    A batched one is returned as it is.
    """
    if np.ndim(timestep.step_type) > 0:
        return timestep
    if timestep.first():
        timestep = timestep._replace(reward=0.0, discount=1.0)
    return dm_env.TimeStep(*[np.array(field)[None] for field in timestep])


MAX_FAILURES_IN_A_ROW = 3
DEFAULT_FRAMES_PER_SECOND = 15.0

_logger = logging.getLogger(__name__)


class SyncVectorEnvironment(VectorEnvironment):
    """A `VectorEnvironment` made of single environments, which are stepped one after the other.

    An environment fails when it raises, as adapters do for observations outside of their space, or
    returns an observation, a reward or a discount that is not finite in float32.
    It then begins another episode with a FIRST step, and the previous episode ends without a LAST
    step or a report. When an environment, its resets included, fails `MAX_FAILURES_IN_A_ROW` times
    without an episode that ends regularly in between, the error is raised.
    """

    def __init__(
        self,
        environments: Sequence[dm_env.Environment],
        num_repeats: int = 1,
        step_timeout_seconds: float | None = None,
    ):
        """Take E environments with equal specs; they may reuse their arrays.

        Args:
          environments: the environments.
          num_repeats: number of their steps for which an action is held; see `hold_action`.
          step_timeout_seconds: time after which a step or a reset counts as hanging; None: never.

        Raises:
          ValueError: there is no environment, or the specs of one differ from those of the first.
        """
        if not environments:
            raise ValueError("environments must hold at least one environment, got none")
        self._environments = list(environments)
        self._num_repeats = num_repeats
        self.num_envs = len(self._environments)
        self.spec = _make_spec(self._environments[0])
        for i, environment in enumerate(environments):
            spec = _make_spec(environment)
            if spec != self.spec:
                raise ValueError(f"environment {i} has {spec}, unlike environment 0: {self.spec}")
        frames_per_second = getattr(environments[0], "frames_per_second", DEFAULT_FRAMES_PER_SECOND)
        self.frames_per_second = frames_per_second / num_repeats
        self.metric_names: Sequence[str] = getattr(environments[0], "metric_names", ())
        self._returns = [0.0] * self.num_envs
        self._clipped_returns = [0.0] * self.num_envs
        self._lengths = [0] * self.num_envs
        self._finished: list[Episode] = []
        self.num_failures = 0
        self._failures_in_a_row = [0] * self.num_envs
        self._paused: set[int] = set()
        self._in_reset, self._in_step = (
            [
                name_call(f"environment {i}", call, step_timeout_seconds)
                for i in range(self.num_envs)
            ]
            for call in ("reset", "step")
        )
        self._is_over = [True] * self.num_envs  # Whether the next step is a reset.

    def reset(self) -> dm_env.TimeStep:
        self._paused.clear()
        rows = self._make_rows()
        for i in range(self.num_envs):
            self._record(rows, i, self._reset(i), 0.0)
        return rows

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        rows = self._make_rows()
        for i in range(self.num_envs):
            if i not in self._paused:
                self._record(rows, i, *self._advance(i, actions[i]))
        return rows

    def pause(self, env_index: int) -> None:
        self._paused.add(env_index)

    def current_episode(self, env_index: int) -> Episode:
        returns = self._returns[env_index], self._clipped_returns[env_index]
        metrics: Any = getattr(self._environments[env_index], "episode_metrics", tuple)()
        return Episode(env_index, *returns, self._lengths[env_index], metrics)

    def render(self, env_index: int) -> np.ndarray:
        environment: Any = self._environments[env_index]
        try:
            frame = np.asarray(environment.render())
        except ValueError:
            raise
        except Exception as error:  # It has no `render`, or a library is missing.
            raise ValueError(f"cannot be rendered: {type(error).__name__}: {error}") from error
        if frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(f"a frame has to be RGB, [H, W, 3], got {frame.shape}")
        return frame.astype(np.uint8, copy=True)

    def close(self) -> None:
        for environment in self._environments:
            environment.close()

    def _advance(self, i: int, action: Any) -> tuple[dm_env.TimeStep, float]:
        """Return the next agent step of an environment, and the plain sum of its rewards."""
        if self._is_over[i]:
            return self._reset(i), 0.0
        try:
            with self._in_step[i]:
                return hold_action(self._environments[i], action, self._num_repeats)
        except (Exception, SystemExit) as error:  # No error of one environment may stop the others.
            self._count_failure(i, error)
            return self._reset(i), 0.0

    def _reset(self, i: int) -> dm_env.TimeStep:
        """Reset one environment, again as long as it fails and may fail."""
        while True:
            try:
                with self._in_reset[i]:
                    timestep = self._environments[i].reset()
                check_finite(timestep)
                return timestep
            except (Exception, SystemExit) as error:
                self._count_failure(i, error)

    def _count_failure(self, i: int, error: Exception | SystemExit) -> None:
        if isinstance(error, SystemExit):
            error = RuntimeError(f"it calls sys.exit({error.code!r})")
        self.num_failures += 1
        self._failures_in_a_row[i] += 1
        if self._failures_in_a_row[i] == MAX_FAILURES_IN_A_ROW:
            raise error
        _logger.warning(
            "Environment %d begins another episode: %s: %s", i, type(error).__name__, error
        )

    def _make_rows(self) -> dm_env.TimeStep:
        """Return new arrays, with the rows of paused environments."""
        observations = self.spec.observations
        return dm_env.TimeStep(
            step_type=np.full(self.num_envs, dm_env.StepType.MID, np.int32),
            reward=np.zeros(self.num_envs, np.float32),
            discount=np.ones(self.num_envs, np.float32),
            observation=np.zeros((self.num_envs, *observations.shape), observations.dtype),
        )

    def _record(
        self, rows: dm_env.TimeStep, i: int, timestep: dm_env.TimeStep, reward: float
    ) -> None:
        """Copy an agent step of an environment into its row; add it, and its own reward, up."""
        step_type, agent_reward, discount, observation = timestep
        rows.step_type[i] = step_type
        rows.observation[i] = observation
        self._is_over[i] = step_type == dm_env.StepType.LAST
        if step_type == dm_env.StepType.FIRST:  # Its reward and discount may be any numbers.
            self._returns[i] = self._clipped_returns[i] = 0.0
            self._lengths[i] = 0
            return
        rows.reward[i], rows.discount[i] = agent_reward, discount
        self._returns[i] += reward  # In float32 0.9 would miss a target of 0.9.
        self._clipped_returns[i] += agent_reward
        self._lengths[i] += 1
        if self._is_over[i]:
            self._finished.append(self.current_episode(i))
            self._failures_in_a_row[i] = 0


def _make_spec(environment: dm_env.Environment) -> EnvironmentSpec:
    return EnvironmentSpec(environment.observation_spec(), environment.action_spec())


def hold_action(
    environment: dm_env.Environment, action: Any, num_repeats: int
) -> tuple[dm_env.TimeStep, float]:
    """Step an environment several times with one action, or until its episode ends.

    With rewards r_k and discounts d_k of these steps, the reward of the agent step is
    r_1 + d_1 r_2 + d_1 d_2 r_3 + ..., and its discount is their product.

    Returns:
      The agent step, and the plain sum of the rewards, r_1 + r_2 + r_3 + ....

    Raises:
      ValueError: a step is not finite, see `check_finite`.
    """
    agent_reward, reward_sum, discount = 0.0, 0.0, 1.0
    for _ in range(num_repeats):
        timestep = environment.step(action)
        check_finite(timestep)
        if timestep.first():  # The episode before had ended.
            return timestep, 0.0
        reward = float(timestep.reward)
        if num_repeats == 1:
            return timestep, reward
        agent_reward += discount * reward
        reward_sum += reward
        discount *= float(timestep.discount)
        if timestep.last():
            break
    return timestep._replace(reward=agent_reward, discount=discount), reward_sum


def name_call(what: str, call: str, timeout_seconds: float | None) -> Waiting:
    """Name the wait for a call, `step` or `reset`, that may take so long; None: any time."""
    if timeout_seconds is None:
        return Waiting(f"{what} to return from {call}")
    limit = f"environment.step_timeout_seconds is {timeout_seconds:g}"
    return Waiting(f"{what} to return from {call} ({limit})", limit_seconds=timeout_seconds)


def check_finite(timestep: dm_env.TimeStep) -> None:
    """Raise a ValueError if a number is not finite, or the discount is not in [0, 1]."""
    observation = np.asarray(timestep.observation)
    if observation.dtype.kind == "f" and not np.isfinite(observation).all():
        raise ValueError("the observation is not finite")
    if timestep.first():  # Its reward and its discount are not read.
        return
    reward, discount = timestep.reward, timestep.discount
    if reward is None or not abs(float(reward)) <= _MAX_FLOAT32:
        raise ValueError(f"the reward is {reward}")
    if discount is None or not 0.0 <= float(discount) <= 1.0:
        raise ValueError(f"the discount is {discount}; it has to be in [0, 1]")


_MAX_FLOAT32 = float(np.finfo(np.float32).max)
