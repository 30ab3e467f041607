"""Images among what agents observe: which observations they are, how large, what convolves them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apex_agents.environments.vector_environment import EnvironmentSpec

Convolutions = Sequence[tuple[int, int, int]]  # Channels, kernel size and stride of each.

# Those of DQN's network (Mnih et al. 2015), for images from 36 x 36 pixels on, and of MinAtar's
# (Young & Tian 2019).
DQN_CONVOLUTIONS: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
SMALL_CONVOLUTIONS: Convolutions = ((16, 3, 1),)


def part_specs(spec: EnvironmentSpec) -> list[EnvironmentSpec]:
    """Return a specification for each part of the observations, `spec` itself if they have none."""
    parts = getattr(spec.observations, "parts", ())
    return [spec._replace(observations=part) for part in parts] or [spec]


def image_size(spec: EnvironmentSpec, frame_stack: int = 0) -> tuple[int, int]:
    """Return height and width of images, or of each of a stack; (0, 0) of other observations."""
    shape = spec.observations.shape[1 if frame_stack else 0 :]
    if not is_image(spec) or len(shape) not in (2, 3):
        return 0, 0
    is_first = len(shape) == 3 and shape[0] < shape[2]  # Of the axes: that of the channels.
    return shape[1:] if is_first else shape[:2]


def is_image(spec: EnvironmentSpec) -> bool:
    """Return whether observations are images, or stacks of them: uint8 with at least two axes."""
    return spec.observations.dtype == np.uint8 and len(spec.observations.shape) > 1


def has_images(spec: EnvironmentSpec) -> bool:
    """Return whether observations, or parts of them, are images."""
    return any(map(is_image, part_specs(spec)))


def largest_byte(spec: EnvironmentSpec) -> float:
    """Return what observations of uint8 are divided by."""
    return np.max(getattr(spec.observations, "maximum", 255))


def stack_of(spec: EnvironmentSpec) -> int:
    """Return how many frames an image with four axes is a stack of, 0 of all others."""
    shape = spec.observations.shape
    return shape[0] if len(shape) == 4 else 0


def can_convolve(convolutions: Convolutions, spec: EnvironmentSpec, frame_stack: int = 0) -> bool:
    """Return whether observations are images that are large enough for convolutions."""
    side = min(image_size(spec, frame_stack))
    for _, kernel_size, stride in convolutions:
        if side < kernel_size:
            return False
        side = (side - kernel_size) // stride + 1
    return True


def fitting_convolutions(spec: EnvironmentSpec, frame_stack: int = 0) -> Convolutions:
    """Return convolutions for the largest image that observations are or have.

    There are none where no observation is an image, or the only one is too small.
    """
    parts = part_specs(spec)
    for convolutions in (DQN_CONVOLUTIONS, SMALL_CONVOLUTIONS):
        if any(can_convolve(convolutions, part, frame_stack or stack_of(part)) for part in parts):
            return convolutions
    return SMALL_CONVOLUTIONS if has_images(spec) and not is_image(spec) else ()
