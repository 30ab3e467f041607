"""Pictures of Atari for people: in colour, and of the console's size."""

from __future__ import annotations

import pathlib
from typing import Any, cast

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv


class AtariRenderer:
    """Plays the games of the first environments a second time, on emulators that show colours.

    Agents see small grey pictures, and the native vector environment gives one kind of pictures
    only. Emulators with equal seeds, settings and actions play equal games, even with sticky
    actions.
    """

    def __init__(self, emulators: AtariVectorEnv):
        """Take R emulators, made as those of the environments but with `colour_settings`."""
        self._emulators = emulators
        self._num_envs = emulators.num_envs
        self._frames: np.ndarray | None = None  # [R, 1, H, W, 3]

    def reset(self, seeds: np.ndarray | None) -> None:
        """Start new games; `seeds` are those of all environments, `[E]`, or None later."""
        seeds = None if seeds is None else seeds[: self._num_envs]
        self._frames, _ = self._emulators.reset(seed=seeds)

    def step(self, actions: np.ndarray) -> None:
        """Step the emulators; `actions` are those of all environments, `[E]`."""
        self._frames, *_ = self._emulators.step(actions[: self._num_envs])

    def render(self, env_index: int) -> np.ndarray:
        if self._frames is None or not 0 <= env_index < self._num_envs:
            raise ValueError(
                f"environment {env_index} is none of the {self._num_envs} that are rendered"
            )
        return self._frames[env_index, 0].copy()

    def close(self) -> None:
        self._emulators.close()


def colour_settings(rom: str) -> dict[str, Any]:
    """Return the arguments of `AtariVectorEnv` for one coloured picture of the console's size."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.loadROM(cast(pathlib.Path, roms.get_rom_path(rom)))
    height, width = ale.getScreenDims()  # 210 x 160 in most games.
    return {"grayscale": False, "stack_num": 1, "img_height": height, "img_width": width}
