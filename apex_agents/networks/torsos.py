"""The torsos that agents bring: from observations to the features that their heads read.

The convolutions of DQN and, for smaller images, of MinAtar are built in.

Within `computing_in(tf.bfloat16)` the decorated methods compute in bfloat16, from variables in
float32.
"""

import types
from collections.abc import Callable, Mapping, Sequence

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.observations import (
    has_images,
    is_channels_first,
    is_image,
    largest_byte,
    part_name,
    part_specs,
    to_image,
    to_parts,
    to_vector,
)
from apex_agents.precision import mixed_precision

Convolutions = Sequence[tuple[int, int, int]]  # Channels, kernel size and stride of each.

# Convolutions of DQN's network (Mnih et al. 2015), for images from 36 x 36 pixels on, and of
# MinAtar's (Young & Tian 2019). The smaller ones for Atari are A3C's (Mnih et al. 2013).
DQN_CONVOLUTIONS: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
ATARI_CONVOLUTIONS = {"atari": DQN_CONVOLUTIONS, "atari_small": ((16, 8, 4), (32, 4, 2))}
SMALL_CONVOLUTIONS: Convolutions = ((16, 3, 1),)


def fitting_convolutions(spec: EnvironmentSpec, frame_stack: int = 0) -> Convolutions:
    """Return convolutions for the largest image that observations are or have.

    There are none where no observation is an image, or the only one is too small.
    """
    parts = part_specs(spec)
    for convolutions in (DQN_CONVOLUTIONS, SMALL_CONVOLUTIONS):
        if any(_can_convolve(convolutions, part, frame_stack or _stack_of(part)) for part in parts):
            return convolutions
    return SMALL_CONVOLUTIONS if has_images(spec) and not is_image(spec) else ()


class ConvTorso(snt.Module):
    """Convolutions over images of any size, then fully connected layers, each with a ReLU.

    The first convolution over stacks of frames is one that is fast on CPUs, `PixelConv2D`, if its
    kernel size and stride allow it.
    """

    def __init__(
        self,
        convolutions: Convolutions,
        hidden_sizes: Sequence[int],
        spec: EnvironmentSpec,
        frame_stack: int = 0,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ):
        """Make the layers, whose variables have a dtype.

        Args:
          convolutions: channels, kernel size and stride of each convolution.
          hidden_sizes: units of each fully connected layer.
          spec: specification of one environment.
          frame_stack: frames per observation, along its first axis; 0 if it is no stack.
          dtype: dtype of the variables.
          name: name of the module.
        """
        super().__init__(name=name)
        self._spec, self._frame_stack, self._dtype = spec, frame_stack, dtype
        self._reads_pixels = bool(convolutions) and _reads_pixels(
            spec, frame_stack, *convolutions[0][1:]
        )
        self._convolutions = [
            PixelConv2D(*sizes, dtype, name=f"conv_{i}")
            if i == 1 and self._reads_pixels
            else snt.Conv2D(*sizes, padding="VALID", name=f"conv_{i}")
            for i, sizes in enumerate(convolutions, 1)
        ]
        self._kernel_sizes = [kernel_size for _, kernel_size, _ in convolutions]
        self._linears = _make_linears(hidden_sizes)

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]`, see `to_image`, to features `[B, F]`.

        Raises:
          ValueError: the observations are no images, or smaller than a kernel.
        """
        if self._reads_pixels:
            return self._convolve(observations)
        image = to_image(observations, self._spec, self._frame_stack)
        return self._convolve(tf.cast(image, self._dtype))

    @mixed_precision
    def _convolve(self, features: tf.Tensor) -> tf.Tensor:
        size = features.shape[2:4] if self._reads_pixels else features.shape[1:3]
        for convolution, kernel_size in zip(self._convolutions, self._kernel_sizes, strict=True):
            if min(size) < kernel_size:
                raise ValueError(
                    f"agent.conv_kernel_sizes has a {kernel_size}, but {convolution.name} gets an "
                    f"image of {size[0]} x {size[1]}; kernels and strides have to be smaller."
                )
            features = tf.nn.relu(convolution(features))
            size = features.shape[1:3]
        features = snt.flatten(features)
        for linear in self._linears:
            features = tf.nn.relu(linear(features))
        return features


class PartsTorso(snt.Module):
    """Torsos of all parts of observations, side by side, then fully connected layers.

    Images pass convolutions, unless they are too small. Those with four axes are stacks of frames.
    All other parts are taken as they are, unless they have torsos of their own.
    """

    def __init__(
        self,
        convolutions: Convolutions,
        hidden_sizes: Sequence[int],
        spec: EnvironmentSpec,
        dtype: tf.DType = tf.float32,
        own_torsos: Mapping[str, tf.Module] = types.MappingProxyType({}),
        name: str | None = None,
    ):
        """Make the layers; see `ConvTorso`. `own_torsos` are by the names of their parts."""
        super().__init__(name=name)
        self._spec = spec
        self._torsos = [
            own_torsos[part_name(part)]
            if part_name(part) in own_torsos
            else ConvTorso(convolutions, (), part, _stack_of(part), dtype, name=f"part_{i}")
            if _can_convolve(convolutions, part, _stack_of(part))
            else VectorTorso((), part, dtype, name=f"part_{i}")
            for i, part in enumerate(part_specs(spec), 1)
        ]
        self._layers = VectorTorso(hidden_sizes, spec, dtype, name="all")

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, N]` to features `[B, F]`."""
        parts = [part for part, _ in to_parts(observations, self._spec)]
        features = [torso(part) for torso, part in zip(self._torsos, parts, strict=True)]
        return self._layers(tf.concat([tf.cast(each, tf.float32) for each in features], axis=1))


class VectorTorso(snt.Module):
    """Fully connected layers over flat observations, each with an activation."""

    def __init__(
        self,
        hidden_sizes: Sequence[int],
        spec: EnvironmentSpec,
        dtype: tf.DType = tf.float32,
        activation: Callable[[tf.Tensor], tf.Tensor] = tf.nn.relu,
        layer_norm: bool = False,
        name: str | None = None,
    ):
        """Make the layers.

        Args:
          hidden_sizes: units of each layer.
          spec: specification of one environment.
          dtype: dtype of the variables.
          activation: function of what each layer gives.
          layer_norm: whether what each layer gives is normalized before that (Ba et al. 2016).
          name: name of the module.
        """
        super().__init__(name=name)
        self._spec, self._dtype, self._activation = spec, dtype, activation
        self._linears = _make_linears(hidden_sizes)
        self._normalizations: list[Callable[[tf.Tensor], tf.Tensor]] = [
            snt.LayerNorm(-1, True, True, name=f"layer_norm_{i}") if layer_norm else tf.identity
            for i in range(1, len(self._linears) + 1)
        ]

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]`, see `to_vector`, to features `[B, F]`."""
        return self._multiply(tf.cast(to_vector(observations, self._spec), self._dtype))

    @mixed_precision
    def _multiply(self, features: tf.Tensor) -> tf.Tensor:
        for linear, normalize in zip(self._linears, self._normalizations, strict=True):
            features = self._activation(normalize(linear(features)))
        return features


class PixelConv2D(snt.Conv2D):
    """Convolution over frames whose pixels it brings from 0..255 to 0..1.

    `PixelConv2D(channels, 8, 4)` computes what this does:

      pixels = tf.cast(tf.transpose(frames, [0, 2, 3, 1]), tf.float32) / 255.0
      snt.Conv2D(channels, 8, 4, padding="VALID")(pixels)

    CPUs convolve only what has its channels last, and moving single bytes there is slow. Here, the
    four pixels in a row of a 4x4 cell move as one 32-bit number, and all pixels of a cell become
    the channels of a smaller convolution, with filters `[2, 2, stack * 16, channels]`. The filters
    are divided by 255 instead of the many more pixels. `_reads_pixels` says which frames it takes.

    Attributes:
      split_into_cells: function that moves the pixels of frames into the channels of their cells.
    """

    def __init__(
        self,
        output_channels: int,
        kernel_shape: int,
        stride: int,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ):
        """Make the layer, without padding; its first call makes variables of a dtype."""
        super().__init__(
            output_channels, kernel_shape // 4, stride // 4, padding="VALID", name=name
        )
        self._variable_dtype = dtype
        self.split_into_cells = _split_into_cells

    def __call__(self, frames: tf.Tensor) -> tf.Tensor:
        """Map frames `[B, stack, H, W]` uint8 to features `[B, H', W', output_channels]`."""
        pixels = tf.cast(self.split_into_cells(frames), self._variable_dtype)
        self._initialize(pixels)
        filters = self.w / 255.0
        # In mixed precision the dtype of the filters differs from that of their variable.
        pixels = tf.cast(pixels, filters.dtype)
        features = tf.nn.conv2d(pixels, filters, self.stride, self.conv_padding)
        return tf.nn.bias_add(features, self.b)


def _reads_pixels(spec: EnvironmentSpec, frame_stack: int, kernel_shape: int, stride: int) -> bool:
    """Return whether `PixelConv2D` can convolve observations: stacks of frames, in whole cells."""
    shape = spec.observations.shape
    if not frame_stack or len(shape) != 3 or not is_image(spec):
        return False
    sizes = (*shape[1:], kernel_shape, stride)
    return largest_byte(spec) == 255 and not any(size % 4 for size in sizes)


def _split_into_cells(frames: tf.Tensor) -> tf.Tensor:
    """Return cells `[B, H / 4, W / 4, stack * 16]` uint8: pixels in order of stack, row, column."""
    _, stack, height, width = frames.shape
    # The four pixels in a row of a cell move as one number.
    rows = tf.bitcast(tf.reshape(frames, [-1, stack, height, width // 4, 4]), tf.int32)
    rows = tf.reshape(rows, [-1, stack, height // 4, 4, width // 4])
    cells = tf.bitcast(tf.transpose(rows, [0, 2, 4, 1, 3]), tf.uint8)
    return tf.reshape(cells, [-1, height // 4, width // 4, stack * 16])


def _can_convolve(convolutions: Convolutions, spec: EnvironmentSpec, frame_stack: int) -> bool:
    """Return whether observations are images that are large enough for convolutions."""
    shape = spec.observations.shape[1 if frame_stack else 0 :]
    if not is_image(spec) or len(shape) not in (2, 3):
        return False
    side = min(shape[1:] if len(shape) == 3 and is_channels_first(shape) else shape[:2])
    for _, kernel_size, stride in convolutions:
        if side < kernel_size:
            return False
        side = (side - kernel_size) // stride + 1
    return True


def _stack_of(spec: EnvironmentSpec) -> int:
    """Return the number of frames in an observation with four axes, 0 for all others."""
    shape = spec.observations.shape
    return shape[0] if len(shape) == 4 else 0


def _make_linears(sizes: Sequence[int]) -> list[snt.Linear]:
    return [snt.Linear(size, name=f"linear_{i}") for i, size in enumerate(sizes, 1)]
