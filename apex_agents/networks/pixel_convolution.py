"""The first convolution over stacked frames, in a form that is fast on CPUs."""

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.images import is_image, largest_byte


class PixelConv2D(snt.Conv2D):
    """Convolution over frames whose pixels it brings from 0..255 to 0..1.

    `PixelConv2D(channels, 8, 4)` computes what this does:

      pixels = tf.cast(tf.transpose(frames, [0, 2, 3, 1]), tf.float32) / 255.0
      snt.Conv2D(channels, 8, 4, padding="VALID")(pixels)

    CPUs convolve only what has its channels last, and moving single bytes there is slow. Here, the
    four pixels in a row of a 4x4 cell move as one 32-bit number, and all pixels of a cell become
    the channels of a smaller convolution, with filters `[2, 2, stack * 16, channels]`. The filters
    are divided by 255 instead of the many more pixels. `reads_pixels` says which frames it takes.

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
        # In mixed precision the filters have another dtype than their variable.
        pixels = tf.cast(pixels, filters.dtype)
        features = tf.nn.conv2d(pixels, filters, self.stride, self.conv_padding)
        return tf.nn.bias_add(features, self.b)


def reads_pixels(spec: EnvironmentSpec, frame_stack: int, kernel_shape: int, stride: int) -> bool:
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
