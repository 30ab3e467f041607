"""What a person sees of Atari: the same games once more, in colour and as large as the console's.

Agents see 84x84 pixels in grey, and the native vector environment gives one size of pictures only.
"""

from __future__ import annotations

import pathlib
from typing import Any, cast

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv


class AtariMirror:
    """Plays the games of the first environments in lock-step with them, which costs them no frame.

    Emulators with equal seeds, settings and actions play equal games, sticky actions included.
    """

    def __init__(self, native: AtariVectorEnv):
        """Take emulators like those of the environments but for `picture_settings`."""
        self._native = native
        self._num_envs = native.num_envs
        self._frames: np.ndarray | None = None  # [N, 1, H, W, 3]
        self._is_in_step = True

    def reset(self, seeds: np.ndarray | None) -> None:
        """Start new games; `seeds` are those of all environments, `[E]`, or None for none."""
        self._frames, _ = self._native.reset(
            seed=None if seeds is None else seeds[: self._num_envs]
        )

    def step(self, actions: np.ndarray, played: tuple[Any, ...]) -> None:
        """Play a step, and look whether it is the same one.

        Args:
          actions: of all environments, `[E]`.
          played: what the environments' own emulators returned.
        """
        mirrored = self._native.step(actions[: self._num_envs])
        self._frames = mirrored[0]
        pairs = zip(_numbers(mirrored), _numbers(played), strict=True)
        self._is_in_step &= all(np.array_equal(a, b[: self._num_envs]) for a, b in pairs)

    def render(self, env_index: int) -> np.ndarray:
        """Return the picture of one environment, uint8 `[H, W, 3]`."""
        if self._frames is None or not 0 <= env_index < self._num_envs:
            raise ValueError(
                f"environment {env_index} is none of the {self._num_envs} that are rendered"
            )
        if not self._is_in_step:
            raise ValueError("the emulators for pictures play another game than the environments")
        return self._frames[env_index, 0].copy()

    def close(self) -> None:
        """Close the emulators."""
        self._native.close()


def _numbers(played: tuple[Any, ...]) -> list[np.ndarray]:
    """Return what a step gives but for the pictures, each `[E]`."""
    _, reward, terminated, truncated, info = played
    return [reward, terminated, truncated, info["lives"], info["episode_frame_number"]]


def picture_settings(rom: str) -> dict[str, Any]:
    """Return the arguments of `AtariVectorEnv` with which it gives one picture as it is."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.loadROM(cast(pathlib.Path, roms.get_rom_path(rom)))
    height, width = ale.getScreenDims()  # 210x160 but for a few games.
    return {"grayscale": False, "stack_num": 1, "img_height": height, "img_width": width}
