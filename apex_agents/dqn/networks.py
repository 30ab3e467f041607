"""Dueling networks (Wang et al. 2016), for frames and for vectors."""

from collections.abc import Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig

# Inside of `snt.mixed_precision.scope(tf.bfloat16)` what is decorated computes in bfloat16, from
# variables in float32. Last layers are not: 8 bits cannot tell the values of two actions apart.
_mixed_precision = snt.mixed_precision.modes([tf.float32, tf.bfloat16])


class DuelingHead(snt.Module):
    """Value and advantage streams.

    q(s, a) = v(s) + adv(s, a) - mean_a' adv(s, a')

    Source: Wang et al. 2016, equation 9.
    """

    def __init__(self, hidden_size: int, num_actions: int, name: str | None = None):
        """Build both streams, one hidden layer of `hidden_size` units each."""
        super().__init__(name=name)
        self._hidden_layers = snt.Linear(2 * hidden_size)  # Side by side: one product for both.
        self._value = snt.Linear(1)
        self._advantage = snt.Linear(num_actions)

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Map features `[B, F]` to action values `[B, A]` float32."""
        value_units, advantage_units = tf.split(tf.cast(self._hidden(features), tf.float32), 2, 1)
        advantage = self._advantage(advantage_units)
        centred = advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True)
        return self._value(value_units) + centred

    @_mixed_precision
    def _hidden(self, features: tf.Tensor) -> tf.Tensor:
        # Both streams send gradients into the features: scaled down so that their sum has the size
        # of one (Wang et al. 2016, section 4.2).
        return tf.nn.relu(self._hidden_layers(scale_gradient(features, 2**-0.5)))


class PixelConv2D(snt.Conv2D):
    """Convolution of pixels that are brought from 0..255 to 0..1.

    Divides the filters, which are fewer numbers than the pixels.
    """

    def __call__(self, pixels: tf.Tensor) -> tf.Tensor:
        """Map `[B, H, W, C]` to `[B, H', W', output channels]`."""
        self._initialize(pixels)
        features = tf.nn.conv2d(pixels, self.w / 255.0, self.stride, self.conv_padding)
        return tf.nn.bias_add(features, self.b)


class AtariTorso(snt.Module):
    """Three convolutions over stacked frames (Mnih et al. 2015)."""

    def __init__(self, dtype: tf.DType = tf.float32, name: str | None = None):
        """Build the layers: 32 8x8/4, 64 4x4/2, 64 3x3/1; `dtype` is that of their variables."""
        super().__init__(name=name)
        self._dtype = dtype
        self._convolutions = [
            PixelConv2D(32, 2, padding="VALID"),  # 8x8/4 over frames is 2x2/1 over 4x4 cells.
            snt.Conv2D(64, 4, 2, padding="VALID"),
            snt.Conv2D(64, 3, padding="VALID"),
        ]

    def __call__(self, frames: tf.Tensor) -> tf.Tensor:
        """Map frames `[B, stack, 84, 84]` uint8 to features `[B, 3136]`."""
        return self._convolve(tf.cast(split_into_cells(frames), self._dtype))

    @_mixed_precision
    def _convolve(self, features: tf.Tensor) -> tf.Tensor:
        for convolution in self._convolutions:
            features = tf.nn.relu(convolution(features))
        return snt.flatten(features)


class VectorTorso(snt.Module):
    """Fully connected layers over flat observations."""

    def __init__(
        self, hidden_sizes: Sequence[int], dtype: tf.DType = tf.float32, name: str | None = None
    ):
        """Build the layers, which all end in a ReLU; `dtype` is that of their variables."""
        super().__init__(name=name)
        self._dtype = dtype
        self._mlp = snt.nets.MLP(hidden_sizes, activate_final=True)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to features `[B, F]`."""
        return self._multiply(snt.flatten(tf.cast(observation, self._dtype)))

    @_mixed_precision
    def _multiply(self, features: tf.Tensor) -> tf.Tensor:
        return self._mlp(features)


def split_into_cells(frames: tf.Tensor) -> tf.Tensor:
    """Cut frames into cells of 4x4 pixels, faster than CPUs bring frames into the last dimension.

    Args:
      frames: `[B, stack, H, W]` uint8, H and W multiples of 4.

    Returns:
      `[B, H / 4, W / 4, stack * 16]` uint8; pixels of a cell in the order stack, row, column.
    """
    _, stack, height, width = frames.shape
    # The four pixels in a row of a cell move as one number.
    rows = tf.bitcast(tf.reshape(frames, [-1, stack, height, width // 4, 4]), tf.int32)
    rows = tf.reshape(rows, [-1, stack, height // 4, 4, width // 4])
    cells = tf.bitcast(tf.transpose(rows, [0, 2, 4, 1, 3]), tf.uint8)
    return tf.reshape(cells, [-1, height // 4, width // 4, stack * 16])


def scale_gradient(tensor: tf.Tensor, scale: float) -> tf.Tensor:
    """Return `tensor` itself, with the gradients that flow back through it times `scale`."""

    @tf.custom_gradient
    def identity(tensor: tf.Tensor) -> Any:
        return tf.identity(tensor), lambda gradient: gradient * scale

    return identity(tensor)


def make_network(
    config: ApexDQNConfig, num_actions: int, dtype: tf.DType = tf.float32
) -> snt.Sequential:
    """Build the action-value network of a config.

    Args:
      config: which network, and its sizes.
      num_actions: A.
      dtype: of the variables of all layers but the last.

    Returns:
      A module from observations `[B, ...]` to action values `[B, A]`. Its first call makes the
      variables; it belongs into a `snt.mixed_precision.scope(tf.float32)` if others are to be in
      mixed precision.
    """
    is_atari = config.network == "atari"
    torso = AtariTorso(dtype) if is_atari else VectorTorso(config.mlp_hidden_sizes, dtype)
    return snt.Sequential([torso, DuelingHead(config.stream_hidden_size, num_actions)])
