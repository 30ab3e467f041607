"""The torsos that agents bring: from observations to the features that their heads read.

Within `computing_in(tf.bfloat16)` the decorated methods compute in bfloat16, from variables in
float32.
"""

from collections.abc import Callable, Sequence

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.images import Convolutions, can_convolve, part_specs, stack_of
from apex_agents.networks.observations import to_image, to_parts, to_vector
from apex_agents.networks.pixel_convolution import PixelConv2D, reads_pixels
from apex_agents.precision import mixed_precision


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
        self._reads_pixels = bool(convolutions) and reads_pixels(
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
    """

    def __init__(
        self,
        convolutions: Convolutions,
        hidden_sizes: Sequence[int],
        spec: EnvironmentSpec,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ):
        """Make the layers; see `ConvTorso`."""
        super().__init__(name=name)
        self._spec = spec
        self._torsos = [
            ConvTorso(convolutions, (), part, stack_of(part), dtype, name=f"part_{i}")
            if can_convolve(convolutions, part, stack_of(part))
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


def _make_linears(sizes: Sequence[int]) -> list[snt.Linear]:
    return [snt.Linear(size, name=f"linear_{i}") for i, size in enumerate(sizes, 1)]
