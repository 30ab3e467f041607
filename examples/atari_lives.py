"""Shows games of ale-py as agents know them whose episodes end with lives; for play_onnx.py.

Such an agent has seen each life from its beginning only: after the loss of one, action 0 is taken
once, and frames from before that are black.
"""

from typing import Any

import gymnasium
import numpy as np


class LivesBeginBlack(gymnasium.vector.VectorWrapper):
    """Wraps a vector environment of ale-py, whose observations are `[E, stack, H, W]`."""

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = super().reset(**kwargs)
        self._lives, self._begins = info["lives"].copy(), np.zeros(self.num_envs, bool)
        self._ages = np.full(self.num_envs, observation.shape[1])  # In steps, of each life.
        return observation, info

    def step(self, actions: np.ndarray) -> tuple:
        observation, *results, info = super().step(np.where(self._begins, 0, actions))
        self._ages = np.where(self._begins, 0, self._ages + 1)
        for frames, age in zip(observation, self._ages, strict=True):
            frames[: max(len(frames) - 1 - age, 0)] = 0
        is_lost = (info["lives"] < self._lives) & (info["lives"] > 0)
        self._begins, self._lives = is_lost & ~self._begins, info["lives"].copy()
        return observation, *results, info
