"""Atari on ale-py's native vector environment (section 4.1 and appendix C), and its settings."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

import dm_env
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from pydantic import Field

from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations
from apex_agents.environments.vector_environment import (
    EnvironmentSpec,
    Episode,
    VectorEnvironment,
    name_call,
    restart_batch,
)
from apex_agents.validation import closest

_MAX_EMULATOR_INT = 2**31 - 1


@dataclasses.dataclass
class AtariConfig:
    """Atari as in the paper (Horgan et al. 2018); "DQN" is Mnih et al. 2015.

    Attributes:
      sticky_action_probability: probability, per frame, that the emulator repeats the previous
        action instead of the given one; the paper has no sticky actions, no-op starts only.
      full_action_set: whether all 18 actions are offered rather than those that the game uses, as
        in DQN.
      life_loss_ends_episode: whether the loss of a life ends the agent's episode; the paper does
        not say. The game continues, and its `Episode` ends when it is over. In evaluations
        episodes are games; after a lost life come a no-op and black frames, as in training.
      clip_rewards: whether the agent's rewards are clipped to [-1, 1]; appendix C.
      max_noops: largest number of no-op frames at the start of a game, drawn uniformly from 0 on;
        section 4.1 names these starts for evaluation, their number is DQN's.
      action_repeat: number of frames for which an action is held; appendix C. An observation is the
        maximum of the last two frames, as in DQN.
      frame_stack: number of frames stacked in an observation, oldest first; appendix C, the number
        is DQN's.
      frame_size: height and width of an observation in pixels; DQN's.
      max_frames: number of frames after which a training episode is truncated, without those of
        the no-op start; section 4.1.
      evaluation_max_frames: the same for evaluation; table 2 says only that it is more than in
        training, these 30 minutes are those of Rainbow (Hessel et al. 2018).
      num_threads: number of threads that step the emulators of one actor; the paper gives every
        actor one core.
    """

    sticky_action_probability: Annotated[float, Field(ge=0, lt=1)] = 0.0
    full_action_set: bool = False
    life_loss_ends_episode: bool = False
    clip_rewards: bool = True
    max_noops: Annotated[int, Field(ge=0, le=10_000)] = 30
    action_repeat: Annotated[int, Field(ge=1, le=1_000)] = 4
    frame_stack: Annotated[int, Field(ge=1, le=100)] = 4
    frame_size: Annotated[int, Field(ge=1, le=1_000)] = 84
    max_frames: Annotated[int, Field(ge=1, le=_MAX_EMULATOR_INT)] = 50_000
    evaluation_max_frames: Annotated[int, Field(ge=1, le=_MAX_EMULATOR_INT)] = 108_000
    num_threads: Annotated[int, Field(ge=1, le=1_000)] = 1


def make_emulators(
    rom: str, config: AtariConfig, num_envs: int, evaluation: bool, **settings: Any
) -> AtariVectorEnv:
    """Make ale-py's native vector environment.

    Args:
      rom: name of the ROM.
      config: preprocessing.
      num_envs: number of emulators.
      evaluation: whether `evaluation_max_frames` is the limit of a game.
      **settings: arguments in place of those that follow from the preprocessing.
    """
    run = {"num_threads": config.num_threads, "autoreset_mode": AutoresetMode.NEXT_STEP}
    arguments = {**emulator_settings(config, evaluation), **run, **settings}
    return AtariVectorEnv(rom, num_envs, **arguments)


def emulator_settings(config: AtariConfig, evaluation: bool) -> dict[str, Any]:
    """Return the arguments of ale-py's native vector environment for a preprocessing."""
    # At its frame limit the native environment stops before it captures the last frame: the newest
    # image of a truncated episode's last observation is pooled with that of the step before.
    max_frames = config.evaluation_max_frames if evaluation else config.max_frames
    return {
        "img_height": config.frame_size,
        "img_width": config.frame_size,
        "stack_num": config.frame_stack,
        "max_num_frames_per_episode": max_frames,
        "repeat_action_probability": config.sticky_action_probability,
        "full_action_space": config.full_action_set,
        "frameskip": config.action_repeat,
        "maxpool": True,
        "noop_max": config.max_noops + 1,  # The native bound is exclusive.
        "reward_clipping": False,  # `Episode.episode_return` needs the unclipped rewards.
        "use_fire_reset": False,
    }


class AtariVectorEnvironment(VectorEnvironment):
    """A `VectorEnvironment` of one Atari game, with an emulator per environment.

    Observations are uint8 `[E, frame_stack, frame_size, frame_size]`, the newest frame last. On a
    FIRST step the older frames are black, so that no stack reaches back into another episode.

    The games that are rendered are played a second time, on emulators that show colours: agents see
    small grey pictures, and the native vector environment gives one kind of pictures. Emulators
    with equal seeds, settings and actions play equal games, even with sticky actions.
    """

    def __init__(  # noqa: PLR0913
        self,
        task: str,
        config: AtariConfig,
        seeds: Sequence[int],
        *,
        evaluation: bool = False,
        num_rendered: int = 0,
        step_timeout_seconds: float | None = None,
        make_emulators: Callable[..., AtariVectorEnv] = make_emulators,
    ):
        """Start the emulators.

        Args:
          task: name of the game; see `rom_name`.
          config: preprocessing.
          seeds: E seeds, one per environment, each in [0, 2 ** 31).
          evaluation: whether games last up to `evaluation_max_frames` and are whole episodes. A
            no-op and black frames follow a lost life as in training, but no FIRST step.
          num_rendered: number of environments, the first ones, that can be rendered; each of them
            has a second emulator.
          step_timeout_seconds: see `EnvironmentConfig`.
          make_emulators: makes the native vector environments.

        Raises:
          ValueError: the game is unknown.
        """
        rom = rom_name(task)
        self.num_envs = len(seeds)
        self.num_failures = 0  # Emulators do not fail.
        self.frames_per_second = _CONSOLE_FRAMES_PER_SECOND / config.action_repeat
        self._in_step = name_call("the emulators", "step", step_timeout_seconds)
        self._native = make_emulators(rom, config, self.num_envs, evaluation)
        self._coloured: AtariVectorEnv | None = None
        self._frames = np.empty(0)  # [R, 1, H, W, 3] of the R games that are rendered.
        if num_rendered:
            num_rendered = min(num_rendered, self.num_envs)
            self._coloured = make_emulators(
                rom, config, num_rendered, evaluation, **_colour_settings(rom)
            )
        self.spec = _make_spec(self._native)
        self._seeds: np.ndarray | None = np.array(seeds, np.int64)
        self._clip_rewards = config.clip_rewards
        self._counts_lives, self._evaluation = config.life_loss_ends_episode, np.bool_(evaluation)
        self._num_older_frames = config.frame_stack - 1
        self._finished: list[Episode] = []

    def reset(self) -> dm_env.TimeStep:
        observation, info = self._native.reset(seed=self._seeds)
        if self._coloured is not None:
            seeds = None if self._seeds is None else self._seeds[: self._coloured.num_envs]
            self._frames, _ = self._coloured.reset(seed=seeds)
        self._seeds = None  # Later games continue the emulators' random numbers.
        self._lives = info["lives"]
        nowhere = np.zeros(self.num_envs, bool)
        self._ended = self._starts = self._over = self._over_at_first = nowhere
        self._ages, self._lengths = np.zeros([2, self.num_envs], np.int64)
        self._returns, self._clipped_returns = np.zeros([2, self.num_envs])
        return restart_batch(observation)

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Hold each action for `action_repeat` frames.

        The step after the end of a game starts a new game. The step after the loss of a life that
        ended an episode plays action 0 in the same game (a no-op in every game that has one); its
        reward counts in `Episode.episode_return` only. Evaluations play it, too.

        Raises:
          ValueError: an action is outside of the action spec.
        """
        if self._seeds is not None:
            return self.reset()
        # `first` begins an episode, `starts` also a game or a life within one.
        first, starts = (began | self._over_at_first for began in (self._ended, self._starts))
        actions = np.where(starts, 0, actions)
        num_actions = self.spec.actions.num_values
        if actions.min() < 0 or actions.max() >= num_actions:  # The native step would never return.
            raise ValueError(f"actions must be in [0, {num_actions}), got {actions.tolist()}")
        if self._coloured is not None:
            self._frames, *_ = self._coloured.step(actions[: self._coloured.num_envs])
        with self._in_step:  # A game that is over is reset in it.
            observation, native_reward, terminated, truncated, info = self._native.step(actions)
        lives, reward = info["lives"], native_reward.astype(np.float32)
        # Qbert stays at 0 lives for some frames before it is over, which is no loss of a life.
        life_lost = (lives < self._lives) & (lives > 0) & self._counts_lives & ~starts
        over = terminated | truncated
        died = (terminated | life_lost & ~self._evaluation) & ~first
        self._lives = lives
        self._ended = (truncated & ~first) | died
        self._starts = self._ended | life_lost
        # A game may end in the very step that follows a lost life, which is a FIRST step. The
        # native environment then starts a new game: the next step is a FIRST one again.
        self._over_at_first = over & first

        agent_reward = np.clip(reward, -1.0, 1.0) if self._clip_rewards else reward
        agent_reward = np.where(first, np.float32(0.0), agent_reward)
        self._count(reward, agent_reward, starts, over)
        self._blacken_older_frames(observation, starts)
        return dm_env.TimeStep(
            step_type=np.where(first, _FIRST, np.where(self._ended, _LAST, _MID)),
            reward=agent_reward,
            discount=np.where(died, np.float32(0.0), np.float32(1.0)),
            observation=observation,
        )

    def current_episode(self, env_index: int) -> Episode:
        return Episode(
            env_index=env_index,
            episode_return=float(self._returns[env_index]),
            clipped_return=float(self._clipped_returns[env_index]),
            length=int(self._lengths[env_index]),
        )

    def render(self, env_index: int) -> np.ndarray:
        if not 0 <= env_index < len(self._frames):
            raise ValueError(
                f"environment {env_index} is not reset yet, or was not made to be rendered"
            )
        return self._frames[env_index, 0].copy()

    def close(self) -> None:
        self._native.close()
        if self._coloured is not None:
            self._coloured.close()

    def _count(
        self, reward: np.ndarray, agent_reward: np.ndarray, starts: np.ndarray, over: np.ndarray
    ) -> None:
        """Add a step to the games, and report those that are over."""
        for counts in (self._returns, self._clipped_returns, self._lengths):
            counts[self._over] = 0
        self._over = over
        self._returns += reward
        self._clipped_returns += agent_reward
        self._lengths += ~starts
        self._finished += [self.current_episode(int(i)) for i in np.flatnonzero(over)]

    def _blacken_older_frames(self, observation: np.ndarray, starts: np.ndarray) -> None:
        """Set the frames from before the start of a game or a life to 0, in place.

        The native environment does so when a game starts, but not after the loss of a life.
        """
        self._ages = np.where(starts, 0, self._ages + 1)
        for i in np.flatnonzero(self._ages < self._num_older_frames):
            observation[i, : self._num_older_frames - self._ages[i]] = 0


_CONSOLE_FRAMES_PER_SECOND = 60.0

_FIRST = np.int32(dm_env.StepType.FIRST)
_MID = np.int32(dm_env.StepType.MID)
_LAST = np.int32(dm_env.StepType.LAST)


def _make_spec(native: AtariVectorEnv) -> EnvironmentSpec:
    num_actions = cast(spaces.Discrete, native.single_action_space).n
    actions = convert_actions(spaces.Discrete(num_actions, dtype=np.int32))
    observations, _ = convert_observations(native.single_observation_space)
    return EnvironmentSpec(observations, actions)


def _colour_settings(rom: str) -> dict[str, Any]:
    """Return arguments of `AtariVectorEnv` for one coloured picture of the console's size."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.loadROM(cast(pathlib.Path, roms.get_rom_path(rom)))
    height, width = ale.getScreenDims()  # 210 x 160 in most games.
    return {"grayscale": False, "stack_num": 1, "img_height": height, "img_width": width}


def rom_name(task: str) -> str:
    """Find the ROM ('ms_pacman') of a game, named as it or as in gymnasium ('MsPacman').

    Raises:
      ValueError: there is no such game; names the closest ones.
    """
    names = {_key(rom): rom for rom in roms.get_all_rom_ids() if rom not in _TWO_PLAYER_ROMS}
    if _key(task) in names:
        return names[_key(task)]
    game = re.sub(r"-v\d+$", "", task.removeprefix("ALE/"))
    if _key(game) in names:
        raise ValueError(
            f"environment.task is {task!r}, an id of gymnasium, whose game has sticky actions and "
            f"no preprocessing; the suite 'atari' names the game alone: {names[_key(game)]!r}, "
            "with environment.atari.sticky_action_probability=0.25 for sticky actions."
        )
    raise ValueError(
        f"unknown Atari game {task!r}; closest: {closest(game.lower(), names.values())}; allowed: "
        f"one of the {len(names)} one-player games of ale_py.roms.get_all_rom_ids()"
    )


# The emulator ends the whole process when one of these is loaded for a single player.
_TWO_PLAYER_ROMS = frozenset({"combat", "joust", "maze_craze", "warlords"})


def _key(name: str) -> str:
    """Return the common form of 'ms_pacman' and 'MsPacman'."""
    return name.replace("_", "").lower()
