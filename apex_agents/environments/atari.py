"""Atari environments on ale-py's native vector environment (section 4.1 and appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import dm_env
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from apex_agents.environments.atari_config import AtariConfig, rom_name
from apex_agents.environments.atari_mirror import AtariMirror, picture_settings
from apex_agents.environments.vector_environment import EnvironmentSpec, Episode


class AtariVectorEnvironment:
    """Environments that play one Atari game, each its own emulator.

    Observations are uint8 `[E, frame_stack, frame_size, frame_size]`, the newest frame last. On a
    FIRST step the older frames are black, so that no stack reaches back into another episode.
    """

    def __init__(
        self,
        task: str,
        config: AtariConfig,
        seeds: Sequence[int],
        evaluation: bool = False,
        num_rendered: int = 0,
    ):
        """Initialize the emulators.

        Args:
          task: the game; see `rom_name`.
          config: the preprocessing.
          seeds: one seed per environment, each in [0, 2 ** 31).
          evaluation: play up to `evaluation_max_frames`, and never end an episode with a life.
          num_rendered: the first so many environments can be rendered, for which each has two
            emulators.

        Raises:
          ValueError: the game is unknown, a field of the config is out of range, or there is no
            environment.
        """
        config.validate()
        if not seeds:
            raise ValueError("seeds must hold one seed per environment, got none")
        self.num_envs = len(seeds)
        self.num_failures = 0  # The emulator does not fail.
        rom = rom_name(task)
        self._native = _make_native(rom, config, self.num_envs, evaluation)
        self._mirror: AtariMirror | None = None
        if num_rendered:
            settings = picture_settings(rom)
            mirror = _make_native(rom, config, min(num_rendered, len(seeds)), evaluation, settings)
            self._mirror = AtariMirror(mirror)
        self.frames_per_second = _CONSOLE_FRAMES_PER_SECOND / config.action_repeat
        self.spec = _make_spec(self._native)
        self._seeds: np.ndarray | None = np.array(seeds, np.int64)
        self._agent_reward_fn = _clip if config.clip_rewards else np.copy
        self._lives_end_episodes = config.life_loss_ends_episode and not evaluation
        self._num_older_frames = config.frame_stack - 1
        self._finished: list[Episode] = []

    def reset(self) -> dm_env.TimeStep:
        """Start a new game in every environment; the seeds are used at the first reset only."""
        observation, info = self._native.reset(seed=self._seeds)
        if self._mirror is not None:
            self._mirror.reset(self._seeds)
        self._seeds = None
        self._lives = info["lives"]
        self._ended = np.zeros(self.num_envs, bool)
        self._over = np.zeros(self.num_envs, bool)
        self._over_at_first = np.zeros(self.num_envs, bool)
        self._ages = np.zeros(self.num_envs, np.int64)
        self._returns = np.zeros(self.num_envs, np.float64)
        self._clipped_returns = np.zeros(self.num_envs, np.float64)
        self._lengths = np.zeros(self.num_envs, np.int64)
        return dm_env.TimeStep(
            step_type=np.full(self.num_envs, dm_env.StepType.FIRST, np.int32),
            reward=np.zeros(self.num_envs, np.float32),
            discount=np.ones(self.num_envs, np.float32),
            observation=observation,
        )

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Hold each action for `action_repeat` frames; see `VectorEnvironment.step`.

        After a game over, the environment's next step starts a new game. After the loss of a life
        that ended an episode, it plays action 0 in the same game (a no-op wherever the game has
        one), and the reward of that step counts in `Episode.episode_return` only.

        Args:
          actions: int `[E]`; ignored before the first reset.

        Returns:
          The batched time step.

        Raises:
          ValueError: an action is outside of the action spec.
        """
        if self._seeds is not None:
            return self.reset()
        first = self._ended
        actions = self._check_actions(np.where(first, 0, actions))
        played = self._native.step(actions)
        if self._mirror is not None:
            self._mirror.step(actions, played)
        observation, native_reward, terminated, truncated, info = played
        lives, reward = info["lives"], native_reward.astype(np.float32)
        # Qbert stays at 0 lives for some frames before it is over: that is no loss of a life.
        life_lost = (lives < self._lives) & (lives > 0) & self._lives_end_episodes
        over = terminated | truncated
        died = (terminated | life_lost | self._over_at_first) & ~first
        self._lives = lives
        self._ended = (truncated & ~first) | died
        # A game may end in the very step that follows a lost life, which is a FIRST step. The
        # native environment then starts a new game: the next step is shown as a LAST one.
        self._over_at_first = over & first

        agent_reward = np.where(first, np.float32(0.0), self._agent_reward_fn(reward))
        self._count(reward, agent_reward, first, over)
        self._blacken_older_frames(observation, first)
        return dm_env.TimeStep(
            step_type=np.where(first, _FIRST, np.where(self._ended, _LAST, _MID)),
            reward=agent_reward,
            discount=np.where(died, np.float32(0.0), np.float32(1.0)),
            observation=observation,
        )

    def finished_episodes(self) -> list[Episode]:
        """Return the games finished since the previous call; see `VectorEnvironment`."""
        finished, self._finished = self._finished, []
        return finished

    def current_episode(self, env_index: int) -> Episode:
        """Return how far an environment's game is; see `VectorEnvironment.current_episode`."""
        return Episode(
            env_index=env_index,
            episode_return=float(self._returns[env_index]),
            clipped_return=float(self._clipped_returns[env_index]),
            length=int(self._lengths[env_index]),
        )

    def render(self, env_index: int) -> np.ndarray:
        """Return the console's picture, uint8 `[210, 160, 3]`; see `VectorEnvironment.render`."""
        if self._mirror is None:
            raise ValueError("the environments were made without any to render")
        return self._mirror.render(env_index)

    def close(self) -> None:
        """Close the native environment; its threads end when it is garbage collected."""
        self._native.close()
        if self._mirror is not None:
            self._mirror.close()

    def _check_actions(self, actions: np.ndarray) -> np.ndarray:
        # The native environment never returns from a step with an action that it does not know.
        num_actions = self.spec.actions.num_values
        if actions.min() < 0 or actions.max() >= num_actions:
            raise ValueError(f"actions must be in [0, {num_actions}), got {actions.tolist()}")
        return actions

    def _count(
        self, reward: np.ndarray, agent_reward: np.ndarray, first: np.ndarray, over: np.ndarray
    ) -> None:
        """Add a step to the episodes, and report those whose game is over."""
        for counts in (self._returns, self._clipped_returns, self._lengths):
            counts[self._over] = 0
        self._over = over
        self._returns += reward
        self._clipped_returns += agent_reward
        self._lengths += ~first
        self._finished += [
            self.current_episode(int(env_index)) for env_index in np.flatnonzero(over)
        ]

    def _blacken_older_frames(self, observation: np.ndarray, first: np.ndarray) -> None:
        """Remove from the stacks, in place, what was seen before the environment's FIRST step.

        The native environment does so when a game starts, but knows nothing of a lost life.
        """
        self._ages = np.where(first, 0, self._ages + 1)
        for env_index in np.flatnonzero(self._ages < self._num_older_frames):
            observation[env_index, : self._num_older_frames - self._ages[env_index]] = 0


_CONSOLE_FRAMES_PER_SECOND = 60.0

_FIRST = np.int32(dm_env.StepType.FIRST)
_MID = np.int32(dm_env.StepType.MID)
_LAST = np.int32(dm_env.StepType.LAST)


def _make_native(
    rom: str,
    config: AtariConfig,
    num_envs: int,
    evaluation: bool,
    picture: dict[str, Any] | None = None,
) -> AtariVectorEnv:
    """Make emulators; `picture` replaces what decides how an observation looks."""
    seen_by_agents = {
        "img_height": config.frame_size,
        "img_width": config.frame_size,
        "stack_num": config.frame_stack,
    }
    # At its frame limit the native environment stops before it captures the last frame: the newest
    # image of a truncated episode's last observation is pooled with that of the step before.
    return AtariVectorEnv(
        rom,
        num_envs,
        num_threads=config.num_threads,
        max_num_frames_per_episode=(
            config.evaluation_max_frames if evaluation else config.max_frames
        ),
        repeat_action_probability=config.sticky_action_probability,
        full_action_space=config.full_action_set,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        frameskip=config.action_repeat,
        noop_max=config.max_noops + 1,  # The native bound is exclusive.
        reward_clipping=False,  # The unclipped rewards are needed for `Episode.episode_return`.
        use_fire_reset=False,
        **(picture or seen_by_agents),
    )


def _make_spec(native: AtariVectorEnv) -> EnvironmentSpec:
    num_actions = int(cast(spaces.Discrete, native.single_action_space).n)
    return EnvironmentSpec(
        observations=specs.BoundedArray(
            native.single_observation_space.shape, np.uint8, 0, 255, name="observation"
        ),
        actions=specs.DiscreteArray(num_actions, dtype=np.int32, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def _clip(reward: np.ndarray) -> np.ndarray:
    return np.clip(reward, -1.0, 1.0)
