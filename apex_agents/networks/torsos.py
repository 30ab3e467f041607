"""The torsos that agents bring: from observations to the features that their heads read.

Within `snt.mixed_precision.scope(tf.bfloat16)` the decorated methods compute in bfloat16, from
variables in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.observations import to_image, to_vector
from apex_agents.networks.pixel_convolution import PixelConv2D

mixed_precision = snt.mixed_precision.modes([tf.float32, tf.bfloat16])


class AtariTorso(snt.Module):
    """Three convolutions over stacked frames (Mnih et al. 2015), with variables of a dtype."""

    def __init__(self, dtype: tf.DType = tf.float32, name: str | None = None):
        super().__init__(name=name)
        self._convolutions = [
            PixelConv2D(32, 8, 4, dtype, name="conv_1"),
            snt.Conv2D(64, 4, 2, padding="VALID", name="conv_2"),
            snt.Conv2D(64, 3, 1, padding="VALID", name="conv_3"),
        ]

    @mixed_precision
    def __call__(self, frames: tf.Tensor) -> tf.Tensor:
        """Map frames `[B, stack, 84, 84]` uint8 to features `[B, 3136]`."""
        features = frames
        for convolution in self._convolutions:
            features = tf.nn.relu(convolution(features))
        return snt.flatten(features)


class ConvTorso(snt.Module):
    """Convolutions over images of any size, then fully connected layers, each with a ReLU."""

    def __init__(
        self,
        config: Any,
        spec: EnvironmentSpec,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ):
        """Make the layers, whose variables have a dtype.

        Args:
          config: settings of which `frame_stack`, `conv_*` and `mlp_hidden_sizes` are read.
          spec: specification of one environment.
          dtype: dtype of the variables.
          name: name of the module.
        """
        super().__init__(name=name)
        self._spec, self._frame_stack, self._dtype = spec, config.frame_stack, dtype
        sizes = zip(
            config.conv_channels, config.conv_kernel_sizes, config.conv_strides, strict=True
        )
        self._convolutions = [
            snt.Conv2D(*size, padding="VALID", name=f"conv_{i}") for i, size in enumerate(sizes, 1)
        ]
        self._linears = _make_linears(config.mlp_hidden_sizes)

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]`, see `to_image`, to features `[B, F]`.

        Raises:
          ValueError: the observations are no images, or smaller than a kernel.
        """
        image = to_image(observations, self._spec, self._frame_stack)
        return self._convolve(tf.cast(image, self._dtype))

    @mixed_precision
    def _convolve(self, features: tf.Tensor) -> tf.Tensor:
        for convolution in self._convolutions:
            size, kernel = features.shape[1:3], convolution.kernel_shape
            if min(size) < kernel:
                raise ValueError(
                    f"agent.conv_kernel_sizes has a {kernel}, but {convolution.name} gets an image "
                    f"of {size[0]} x {size[1]}; kernels and strides have to be smaller."
                )
            features = tf.nn.relu(convolution(features))
        features = snt.flatten(features)
        for linear in self._linears:
            features = tf.nn.relu(linear(features))
        return features


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
