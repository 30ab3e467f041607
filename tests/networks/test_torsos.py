"""Tests of the built-in torsos."""

from typing import Any

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.torsos import DQN_CONVOLUTIONS, ConvTorso, PixelConv2D, VectorTorso


def make_spec(shape: tuple[int, ...], dtype: Any, maximum: float = 255) -> EnvironmentSpec:
    observations = specs.BoundedArray(shape, dtype, 0, maximum)
    return EnvironmentSpec(observations, specs.DiscreteArray(2), None, None)


def make_corner_torso(signs: tuple[float, float, float]) -> ConvTorso:
    """Build a torso whose layers hand on, in channel k, the corner of their input's channel k.

    Each layer multiplies with its sign. Strides 4 * 2 * 1 leave every eighth pixel.
    """
    torso = ConvTorso(DQN_CONVOLUTIONS, (), make_spec((4, 84, 84), np.uint8), frame_stack=4)
    torso(tf.zeros([1, 4, 84, 84], tf.uint8))
    sign_of_kernel = dict(zip([(2, 2, 64, 32), (4, 4, 32, 64), (3, 3, 64, 64)], signs, strict=True))
    for variable in torso.variables:
        values = np.zeros(variable.shape, np.float32)
        if values.ndim == 4:
            for k in range(4):
                pixels = 16 if values.shape[2] == 64 and values.shape[0] == 2 else 1
                values[0, 0, k * pixels, k] = sign_of_kernel[values.shape]
        variable.assign(values)
    return torso


def test_frames_are_scaled_and_frame_k_is_channel_k():
    frames = np.random.default_rng(0).integers(0, 256, [2, 4, 84, 84]).astype(np.uint8)
    features = make_corner_torso((1, 1, 1))(tf.constant(frames)).numpy().reshape(2, 7, 7, 64)
    for k in range(4):
        expected = frames[:, k, 0:56:8, 0:56:8] / 255.0
        np.testing.assert_allclose(features[..., k], expected, rtol=1e-6)
    assert not features[..., 4:].any()


# Without the ReLU after the first, second or third layer, the features would not be 0.
@pytest.mark.parametrize("signs", [(-1, -1, 1), (1, -1, -1), (1, 1, -1)])
def test_every_convolution_ends_in_a_relu(signs):
    frames = tf.fill([1, 4, 84, 84], np.uint8(200))
    assert not make_corner_torso(signs)(frames).numpy().any()


def test_vector_torso_ends_in_a_relu():
    torso = VectorTorso([2], make_spec((2,), np.float32))
    torso(tf.zeros([1, 2]))
    for variable in torso.variables:
        variable.assign(np.diag([1.0, -1.0]) if variable.shape.rank == 2 else np.zeros(2))
    assert torso(tf.constant([[3.0, 4.0]])).numpy().tolist() == [[3.0, 0.0]]


@pytest.mark.parametrize(("dtype", "expected"), [(np.uint8, [0.75, 0.25]), (np.float32, [3, 1])])
def test_vector_torso_scales_bytes_by_their_maximum(dtype, expected):
    torso = VectorTorso([], make_spec((2,), dtype, maximum=4))
    assert torso(tf.constant([[3, 1]], dtype)).numpy().tolist() == [expected]


CONVOLUTIONS = ((1, 3, 2), (2, 2, 1))


def test_layers_have_the_given_sizes():
    torso = ConvTorso(CONVOLUTIONS, (5,), make_spec((9, 7, 3), np.uint8))
    features = torso(tf.zeros([2, 9, 7, 3], tf.uint8))
    shapes = {variable.name: tuple(variable.shape) for variable in torso.variables}
    # 9 x 7 becomes 4 x 3 with stride 2, then 3 x 2.
    assert shapes == {
        "conv_torso/conv_1/w:0": (3, 3, 3, 1),
        "conv_torso/conv_1/b:0": (1,),
        "conv_torso/conv_2/w:0": (2, 2, 1, 2),
        "conv_torso/conv_2/b:0": (2,),
        "conv_torso/linear_1/w:0": (3 * 2 * 2, 5),
        "conv_torso/linear_1/b:0": (5,),
    }
    assert (features.shape, features.dtype) == ((2, 5), tf.float32)


def test_convolutions_see_scaled_pixels_and_end_in_relus():
    torso = ConvTorso([(2, 1, 1)], [], make_spec((1, 2, 1), np.uint8, maximum=10))
    image = tf.constant([[[[5], [10]]]], tf.uint8)
    torso(image)
    for variable in torso.variables:
        variable.assign([[[[1.0, -1.0]]]] if variable.shape.rank == 4 else [0.0, 0.75])
    # Both channels of the first pixel, 0.5, then those of the second one, 1.
    expected = [[0.5, 0.75 - 0.5, 1.0, 0.0]]
    np.testing.assert_allclose(torso(image), expected, rtol=1e-6)


def test_layers_behind_the_convolutions_end_in_a_relu():
    torso = ConvTorso([], [2], make_spec((1, 2, 1), np.uint8, maximum=10))
    image = tf.constant([[[[5], [10]]]], tf.uint8)
    torso(image)
    for variable in torso.variables:
        variable.assign(np.diag([1.0, -1.0]) if variable.shape.rank == 2 else np.zeros(2))
    assert torso(image).numpy().tolist() == [[0.5, 0.0]]


def test_a_stack_becomes_channels():
    torso = ConvTorso(CONVOLUTIONS, (), make_spec((4, 9, 7), np.uint8), frame_stack=4)
    torso(tf.zeros([2, 4, 9, 7], tf.uint8))
    assert [v.shape[2] for v in torso.variables if v.name.endswith("conv_1/w:0")] == [4]


# In each, one thing keeps the first convolution from reading cells of 4 x 4 pixels.
PLAIN = {
    "no stack": ((4, 12, 8), 0, (8, 4), np.uint8, 255),
    "stacked images": ((4, 12, 8, 4), 4, (8, 4), np.uint8, 255),
    "floats": ((4, 12, 8), 4, (8, 4), np.float32, 255),
    "true and false": ((4, 12, 8), 4, (8, 4), np.uint8, 1),
    "side": ((4, 12, 10), 4, (8, 4), np.uint8, 255),
    "kernel size": ((4, 12, 8), 4, (6, 4), np.uint8, 255),
    "stride": ((4, 12, 8), 4, (8, 2), np.uint8, 255),
}


@pytest.mark.parametrize(("shape", "stack", "sizes", "dtype", "maximum"), PLAIN.values(), ids=PLAIN)
def test_only_stacks_of_frames_get_the_convolution_over_pixels(shape, stack, sizes, dtype, maximum):
    def has_pixel_convolution(*observations: Any, sizes: Any, stack: int) -> bool:
        torso = ConvTorso([(2, *sizes)], [], make_spec(*observations), stack)
        return any(isinstance(module, PixelConv2D) for module in torso.submodules)

    assert has_pixel_convolution((4, 12, 8), np.uint8, 255, sizes=(8, 4), stack=4)
    assert not has_pixel_convolution(shape, dtype, maximum, sizes=sizes, stack=stack)


@pytest.mark.parametrize(
    ("convolutions", "shape", "stack", "advice"),
    [
        (CONVOLUTIONS, (2, 9, 3), 0, "has a 2, but conv_2 gets an image of 4 x 1"),
        (CONVOLUTIONS, (9, 2, 1), 0, "has a 3, but conv_1 gets an image of 9 x 2"),
        (CONVOLUTIONS, (9, 4, 3), 0, "has a 2, but conv_2 gets an image of 4 x 1"),
        ([(2, 8, 4)], (4, 12, 4), 4, "has a 8, but conv_1 gets an image of 12 x 4"),
        ([(2, 8, 4), (2, 3, 1)], (4, 12, 8), 4, "has a 3, but conv_2 gets an image of 2 x 1"),
    ],
)
def test_an_image_smaller_than_a_kernel_is_refused(convolutions, shape, stack, advice):
    torso = ConvTorso(convolutions, [], make_spec(shape, np.uint8), stack)
    with pytest.raises(ValueError, match=f"agent\\.conv_kernel_sizes {advice};"):
        torso(tf.zeros([2, *shape], tf.uint8))


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
