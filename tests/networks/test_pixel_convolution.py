"""Tests of the convolution over frames against the plain one of its docstring."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.networks.pixel_convolution import PixelConv2D

FRAMES = np.random.default_rng(0).integers(0, 256, [2, 4, 84, 84]).astype(np.uint8)


def to_cells(filters: np.ndarray) -> np.ndarray:
    """Arrange plain filters `[8, 8, stack, out]` as filters over cells of 4x4 pixels."""
    rows, columns, stack, channels = filters.shape
    # [cell row, row, cell column, column, frame, out] to [cell row, cell column, pixels, out].
    parts = filters.reshape(rows // 4, 4, columns // 4, 4, stack, channels)
    return parts.transpose(0, 2, 4, 1, 3, 5).reshape(rows // 4, columns // 4, 16 * stack, channels)


@pytest.mark.parametrize(("kernel_shape", "stride"), [(8, 4), (4, 4), (12, 8)])
def test_outputs_and_gradients_are_those_of_the_plain_convolution(kernel_shape, stride):
    plain = snt.Conv2D(32, kernel_shape, stride, padding="VALID")
    layer = PixelConv2D(32, kernel_shape, stride)
    with tf.GradientTape() as tape:
        pixels = tf.cast(tf.transpose(FRAMES, [0, 2, 3, 1]), tf.float32) / 255.0
        expected = plain(pixels)
        # Another factor for each output, so that no error in one cancels that of another.
        factors = tf.constant(np.random.default_rng(1).normal(size=expected.shape), tf.float32)
        loss = tf.reduce_sum(factors * expected)
    w_gradient, b_gradient = tape.gradient(loss, [plain.w, plain.b])

    layer(tf.constant(FRAMES))
    layer.w.assign(to_cells(plain.w.numpy()))
    with tf.GradientTape() as tape:
        output = layer(tf.constant(FRAMES))
        loss = tf.reduce_sum(factors * output)
    gradients = tape.gradient(loss, [layer.w, layer.b])
    # Sums of up to 800 products of float32, whose rounding errors are below 1e-5 of the sum of
    # their sizes, about 1 for the outputs and below 1000 for the gradients.
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(gradients[0], to_cells(w_gradient.numpy()), atol=1e-2)
    np.testing.assert_allclose(gradients[1], b_gradient, atol=1e-2)


def test_initial_filters_have_the_variance_of_the_plain_ones():
    tf.random.set_seed(0)
    plain, layer = snt.Conv2D(512, 8, 4, padding="VALID"), PixelConv2D(512, 8, 4)
    plain(tf.zeros([1, 84, 84, 4]))
    layer(tf.constant(FRAMES))
    # Standard deviations of 131,072 numbers each, known to within 1 / sqrt(2 * 131,072) = 0.2 %.
    assert np.std(layer.w) == pytest.approx(np.std(plain.w), rel=0.02)
    assert not layer.b.numpy().any()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_variables_have_the_given_dtype(dtype):
    layer = PixelConv2D(32, 8, 4, dtype)
    output = layer(tf.constant(FRAMES))
    assert (output.dtype, output.shape) == (dtype, (2, 20, 20, 32))
    assert {variable.dtype for variable in layer.variables} == {dtype}
