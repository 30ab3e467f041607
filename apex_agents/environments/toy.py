"""Toy tasks, small enough that a whole agent learns them within seconds."""

from __future__ import annotations

from typing import Any

import dm_env
import gymnasium
import numpy as np
from dm_env import specs

_CELL = 32  # Pixels.
_BACKGROUND, _GRID, _WHITE = (24, 26, 32), (44, 48, 58), (235, 235, 235)
_ORANGE, _BLUE = (255, 159, 64), (90, 170, 255)
_FRAMES_PER_SECOND = 5.0  # Slow enough for people to follow.


class Catch(dm_env.Environment):
    """Catch a falling ball with a paddle.

    The ball appears in a random column of the top row and falls one row per step; the paddle, in
    the bottom row, starts in the middle and moves left (0), stays (1) or moves right (2). The
    episode terminates when the ball reaches the bottom row, after `rows - 1` steps, with reward 1
    if the paddle is there and -1 if not; every other reward is 0.
    """

    frames_per_second = _FRAMES_PER_SECOND

    def __init__(self, rows: int = 10, columns: int = 5, seed: int | None = None):
        """Initialize a board of at least two rows; `seed` is that of the ball's columns."""
        self._rows = rows
        self._columns = columns
        self._random = np.random.default_rng(seed)
        self._ball_row = rows - 1  # An episode ends in this row.
        self._ball_column = self._paddle_column = 0

    def reset(self) -> dm_env.TimeStep:
        self._ball_row = 0
        self._ball_column = int(self._random.integers(self._columns))
        self._paddle_column = self._columns // 2
        return dm_env.restart(self._observe())

    def step(self, action: int) -> dm_env.TimeStep:
        """Move the paddle, then let the ball fall by one row.

        Raises:
          ValueError: the action is none of the three.
        """
        if self._ball_row == self._rows - 1:
            return self.reset()
        if action not in (0, 1, 2):
            raise ValueError(f"action must be 0, 1 or 2, got {action}")
        moved = self._paddle_column + int(action) - 1
        self._paddle_column = min(max(moved, 0), self._columns - 1)
        self._ball_row += 1
        if self._ball_row < self._rows - 1:
            return dm_env.transition(0.0, self._observe())
        caught = self._paddle_column == self._ball_column
        return dm_env.termination(1.0 if caught else -1.0, self._observe())

    def observation_spec(self) -> specs.BoundedArray:
        """Return the spec of an observation: `[rows * columns]`, 1 at the ball and the paddle."""
        size = self._rows * self._columns
        return specs.BoundedArray((size,), np.float32, 0.0, 1.0, name="observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(3, dtype=np.int32, name="action")

    def render(self) -> np.ndarray:
        """Draw the board: uint8 `[32 * rows, 32 * columns, 3]`, orange ball, blue paddle."""
        frame = np.full([self._rows * _CELL, self._columns * _CELL, 3], _BACKGROUND, np.uint8)
        frame[::_CELL] = frame[:, ::_CELL] = _GRID
        top, left = (self._rows - 1) * _CELL, self._paddle_column * _CELL
        frame[top + _CELL // 2 : top + _CELL, left + 2 : left + _CELL - 1] = _BLUE
        top, left = self._ball_row * _CELL, self._ball_column * _CELL
        frame[top + 8 : top + _CELL - 8, left + 8 : left + _CELL - 8] = _ORANGE
        return frame

    def _observe(self) -> np.ndarray:
        board = np.zeros((self._rows, self._columns), np.float32)
        board[self._ball_row, self._ball_column] = 1.0
        board[-1, self._paddle_column] = 1.0
        return board.reshape(-1)


class PointMass(dm_env.Environment):
    """Push a point to the middle of a line.

    The point starts anywhere in [-1, 1], which is the observation, and moves by `step_size` times
    the action, which is in [-1, 1]; it cannot leave the line. The reward of a step is minus the
    distance to the middle. Episodes are truncated after `num_steps` steps.
    """

    frames_per_second = _FRAMES_PER_SECOND

    def __init__(self, step_size: float = 0.25, num_steps: int = 10, seed: int | None = None):
        self._step_size = step_size
        self._num_steps = num_steps
        self._random = np.random.default_rng(seed)
        self._position = 0.0
        self._steps_left = 0

    def reset(self) -> dm_env.TimeStep:
        self._position = self._random.uniform(-1.0, 1.0)
        self._steps_left = self._num_steps
        return dm_env.restart(self._observe())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        if not self._steps_left:
            return self.reset()
        (push,) = np.asarray(action)
        self._position = min(max(self._position + self._step_size * float(push), -1.0), 1.0)
        self._steps_left -= 1
        make_step = dm_env.transition if self._steps_left else dm_env.truncation
        return make_step(-abs(self._position), self._observe())

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="observation")

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action")

    def render(self) -> np.ndarray:
        """Draw the line: uint8 `[64, 320, 3]`, with its middle white and the point orange."""
        frame = np.full([2 * _CELL, 10 * _CELL, 3], _BACKGROUND, np.uint8)
        left, right = _CELL, 9 * _CELL
        frame[_CELL - 1 : _CELL + 1, left:right] = _GRID
        middle = (left + right) // 2
        frame[_CELL // 2 : -_CELL // 2, middle - 1 : middle + 1] = _WHITE
        point = round(middle + self._position * (right - left) / 2)
        frame[_CELL - 6 : _CELL + 6, point - 6 : point + 6] = _ORANGE
        return frame

    def _observe(self) -> np.ndarray:
        return np.array([self._position], np.float32)


class PositionOnlyCartPole(gymnasium.ObservationWrapper):
    """CartPole-v1 whose observations lack the velocities.

    An observation has the cart's position and the pole's angle at the last `num_stacked` steps,
    oldest first, `[2 * num_stacked]`; the first ones stand for those before an episode.
    """

    def __init__(self, num_stacked: int = 1, **kwargs: Any):
        """Make CartPole-v1 with the other arguments, which are gymnasium's."""
        environment = gymnasium.make("CartPole-v1", **kwargs)
        super().__init__(gymnasium.wrappers.FrameStackObservation(environment, num_stacked))
        full: Any = self.env.observation_space
        bounds = self.observation(full.low), self.observation(full.high)
        self.observation_space = gymnasium.spaces.Box(*bounds)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[:, ::2].reshape(-1)


def make_minigrid_memory(size: int, render_mode: str | None = None) -> gymnasium.Env:
    """Make MiniGrid's memory maze without its mission, a text that is always the same."""
    from minigrid.envs import MemoryEnv
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(MemoryEnv(size=size, max_steps=5 * size**2, render_mode=render_mode))
