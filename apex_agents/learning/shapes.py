"""Static checks of shapes, which add nothing to the graph of a compiled function."""

from collections.abc import Sequence

import tensorflow as tf


def check_shapes(shape: tf.TensorShape | Sequence[int | None], **tensors: tf.Tensor) -> None:
    """Check tensors of equal shape: `[B, 1]` where `[B]` is meant would broadcast to `[B, B]`.

    Args:
      shape: shape that all of them have to have; None matches any size.
      **tensors: tensors by name; sizes that are unknown while a graph is built are not checked.

    Raises:
      ValueError: a tensor has the wrong shape.
    """
    for name, tensor in tensors.items():
        if not tensor.shape.is_compatible_with(shape):
            raise ValueError(
                f"{name} has shape {tensor.shape}; it has to be {tf.TensorShape(shape)}."
            )
