"""Observations as networks compute with them: images with their channels last, and flat vectors.

Observations of uint8 with at least two axes are images, or stacks of them. `to_image` and
`to_vector` divide uint8 numbers by the maximum of their spec: 255 for pixels, 1 for what is true or
false. Floats are left as they are.
"""

import math
import re
from collections.abc import Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.frames import holds_images


def to_image(observations: tf.Tensor, spec: EnvironmentSpec, frame_stack: int = 0) -> tf.Tensor:
    """Bring images of any usual layout into the one that convolutions on CPUs need.

    An image is `[H, W]`, `[H, W, C]` or `[C, H, W]`; see `is_channels_first`. A stack of k images
    has them along its first axis and becomes one image of `k * C` channels, those of the oldest
    image first.

    Args:
      observations: `[B, ...]`, as the environment gives them.
      spec: specification of one environment.
      frame_stack: k, `agent.frame_stack`; 0 if observations are no stack.

    Returns:
      `[B, H, W, C]` float32.

    Raises:
      ValueError: the observations are no images.
    """
    shape = spec.observations.shape
    image_shape = shape[1:] if frame_stack else shape
    if len(image_shape) not in (2, 3):
        raise ValueError(
            f"observations of shape {shape} are no images with agent.frame_stack={frame_stack}; "
            "an image has the shape [H, W], [H, W, C] or [C, H, W], a stack one more axis in front."
        )
    images = tf.reshape(_scale(observations, spec), [-1, frame_stack or 1, *image_shape])
    if len(image_shape) == 2:
        images = images[..., tf.newaxis]
    elif is_channels_first(image_shape):
        images = tf.transpose(images, [0, 1, 3, 4, 2])
    _, stack, height, width, channels = images.shape
    return tf.reshape(tf.transpose(images, [0, 2, 3, 1, 4]), [-1, height, width, stack * channels])


def to_vector(observations: tf.Tensor, spec: EnvironmentSpec) -> tf.Tensor:
    """Flatten observations `[B, ...]` to `[B, N]` float32, scaled as the module says."""
    return snt.flatten(_scale(observations, spec))


def to_parts(
    observations: tf.Tensor, spec: EnvironmentSpec
) -> list[tuple[tf.Tensor, EnvironmentSpec]]:
    """Take the vectors `[B, N]` apart that a Dict or a Tuple has become.

    Returns:
      What `to_image` and `to_vector` take for each part of `spec.observations.parts`: its
      observations, `[B, ...]` uint8 of an image and `[B, n]` float32 of all else, with their
      specification. Where there are no parts, all observations.
    """
    parts = part_specs(spec)
    if parts == [spec]:
        return [(observations, spec)]
    sizes = [math.prod(part.observations.shape) for part in parts]
    shaped = [
        tf.cast(tf.reshape(vectors, [-1, *part.observations.shape]), part.observations.dtype)
        for vectors, part in zip(tf.split(observations, sizes, axis=1), parts, strict=True)
    ]
    return list(zip(shaped, parts, strict=True))


def zero_observations(spec: EnvironmentSpec) -> tf.Tensor:
    """Return two observations of zeros, for the first call of a network."""
    return tf.zeros([2, *spec.observations.shape], spec.observations.dtype)


def part_specs(spec: EnvironmentSpec) -> list[EnvironmentSpec]:
    """Return a specification for each part of the observations, `spec` itself if they have none."""
    parts = getattr(spec.observations, "parts", ())
    return [spec._replace(observations=part) for part in parts] or [spec]


def part_name(spec: EnvironmentSpec) -> str:
    """Return the name of a part: its key, or its keys with dots between them."""
    return ".".join(re.findall(r"\['?(.*?)'?\]", spec.observations.name or ""))


def is_image(spec: EnvironmentSpec) -> bool:
    """Return whether observations are images, or stacks of them."""
    return holds_images(spec.observations)


def has_images(spec: EnvironmentSpec) -> bool:
    """Return whether observations, or parts of them, are images."""
    return any(map(is_image, part_specs(spec)))


def is_channels_first(shape: Sequence[int]) -> bool:
    """Return whether an image is `[C, H, W]`, not `[H, W, C]`.

    Two equal sizes side by side, with a third one that differs, are height and width, unless the
    last size is 3, of colors. Otherwise the smaller one of the first and the last is the channels.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last) and last != 3:
        return middle == last
    return first < last


def largest_byte(spec: EnvironmentSpec) -> float:
    """Return the number by which observations of uint8 are divided."""
    return np.max(getattr(spec.observations, "maximum", 255))


def _scale(observations: tf.Tensor, spec: EnvironmentSpec) -> tf.Tensor:
    numbers = tf.cast(observations, tf.float32)
    if observations.dtype != tf.uint8:  # They may have been normalized, and be floats.
        return numbers
    return numbers / largest_byte(spec)
