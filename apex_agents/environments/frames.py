"""Frames: what of an observation a replay stores once, as bytes, and not with each transition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from dm_env import specs

from apex_agents.environments.masks import has_mask, without_mask
from apex_agents.environments.vector_environment import EnvironmentSpec

# Every so many steps of an episode, beginning with its first one.
_SLIDE_CHECK_PERIOD = 16


def find_frames(spec: EnvironmentSpec, frame_stack: int) -> Frames | None:
    """Return how observations come apart into frames and the rest, None if they have no frame.

    Args:
      spec: specification of one environment.
      frame_stack: frames that are stacked along the first axis of an observation, 0 for none.
    """
    observations: Any = without_mask(spec).observations
    parts: Sequence[specs.Array] = getattr(observations, "parts", ())
    blocks = [(math.prod(part.shape), holds_images(part)) for part in parts]
    if any(is_image for _, is_image in blocks):
        if has_mask(spec):
            blocks.append((spec.observations.shape[0] - observations.shape[0], False))
        return Frames(spec.observations, 0, blocks)
    if has_mask(spec):  # A stack with a mask behind it no longer slides.
        return Frames(spec.observations, 0) if holds_images(observations) else None
    is_frame = frame_stack > 0 or holds_images(observations)
    return Frames(observations, frame_stack) if is_frame else None


def holds_images(spec: specs.Array) -> bool:
    """Return whether arrays are images, or stacks of them."""
    return spec.dtype == np.uint8 and len(spec.shape) > 1


class Frames:
    """How observations come apart: into a frame, or a stack of them, and the rest.

    An image is a frame as a whole, and so is one with a mask behind it. Of a Dict or a Tuple, which
    is one vector, the pixels of its images are.

    Attributes:
      stack: frames of an observation that slide by one per step, oldest first; 0: it has one.
      shape: shape of a frame.
      dtype: dtype of a frame.
      rest_size: R, numbers of the rest.
    """

    def __init__(
        self, observations: specs.Array, stack: int, blocks: Sequence[tuple[int, bool]] = ()
    ):
        """Take the spec of observations, and sizes of the blocks that alternate in a vector.

        Each block has the number of its elements and whether they are pixels.
        """
        self.stack = stack
        self.shape, self.dtype = observations.shape[1 if stack else 0 :], observations.dtype
        self.rest_size = 0
        self._observation_shape, self._blocks = observations.shape, blocks
        if blocks:
            sizes, are_pixels = zip(*blocks, strict=True)
            self._is_pixel = np.repeat(are_pixels, sizes)
            self.shape, self.dtype = (int(self._is_pixel.sum()),), np.dtype(np.uint8)
            self.rest_size = len(self._is_pixel) - self.shape[0]

    def split(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the frame of an observation, or its stack `[K, ...]`, and the rest, `[R]`."""
        if not self._blocks:
            return observation, _NOTHING
        is_pixel = self._is_pixel
        return observation[is_pixel].astype(self.dtype), observation[~is_pixel]

    def merge(self, frames: tf.Tensor, rest: tf.Tensor, batch_shape: Sequence[int]) -> tf.Tensor:
        """Put observations `[*batch_shape, ...]` together from frames and the rest, `[..., R]`."""
        if not self._blocks:
            return tf.reshape(frames, [*batch_shape, *self._observation_shape])
        pixels = tf.cast(tf.reshape(frames, [*batch_shape, *self.shape]), tf.float32)
        parts = [*map(self._take_apart, (rest, pixels), (False, True))]
        return tf.concat([next(parts[is_pixel]) for _, is_pixel in self._blocks], axis=-1)

    def _take_apart(self, numbers: tf.Tensor, are_pixels: bool) -> Iterator[tf.Tensor]:
        sizes = [size for size, is_pixel in self._blocks if is_pixel == are_pixels]
        ends = [*itertools.accumulate(sizes, initial=0)]
        return (numbers[..., start:end] for start, end in itertools.pairwise(ends))


_NOTHING = np.zeros(0, np.float32)


class SlideCheck:
    """Looks now and then whether the stacked frames of an observation slide by one per step."""

    def follow(self, observation: np.ndarray, is_first: bool) -> None:
        """Take the stack of the next step, `[K, ...]`; raise a ValueError if it did not slide."""
        is_due = not is_first and self._num_steps % _SLIDE_CHECK_PERIOD == 1
        # Bytes are compared rather than numbers, of which NaN differs from itself.
        if is_due and observation[:-1].tobytes() != self._before[1:].tobytes():
            raise ValueError(
                f"agent.frame_stack is {len(observation)}, but observations of shape "
                f"{observation.shape} do not slide by one frame per step. Stack frames along the "
                "first axis, oldest first, of agent steps where environment.action_repeat is above "
                "1, or set agent.frame_stack=0."
            )
        self._num_steps: int = 1 if is_first else self._num_steps + 1
        self._before: np.ndarray = observation


def restore(rows: tf.Tensor, batch_shape: Sequence[int], spec: Any) -> tf.Tensor:
    """Give rows `[*batch_shape, N]` the shape and the dtype of a spec; floats may be rounded."""
    return tf.cast(tf.reshape(rows, [*batch_shape, *spec.shape]), spec.dtype)
