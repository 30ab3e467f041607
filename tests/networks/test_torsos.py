"""Tests of the built-in torsos."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.torsos import AtariTorso, ConvTorso, VectorTorso


def make_spec(shape: tuple[int, ...], dtype: Any, maximum: float = 255) -> EnvironmentSpec:
    observations = specs.BoundedArray(shape, dtype, 0, maximum)
    return EnvironmentSpec(observations, specs.DiscreteArray(2), None, None)


def make_corner_torso(signs: tuple[float, float, float]) -> AtariTorso:
    """Build a torso whose layers hand on, in channel k, the corner of their input's channel k.

    Each layer multiplies with its sign. Strides 4 * 2 * 1 leave every eighth pixel.
    """
    torso = AtariTorso()
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


CONV = ApexDQNConfig(
    torso="conv",
    frame_stack=0,
    conv_channels=(1, 2),
    conv_kernel_sizes=(3, 2),
    conv_strides=(2, 1),
    mlp_hidden_sizes=(5,),
)


def test_layers_of_the_convolutions_are_those_of_the_config():
    torso = ConvTorso(CONV, make_spec((9, 7, 3), np.uint8))
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
    config = dataclasses.replace(
        CONV,
        conv_channels=(2,),
        conv_kernel_sizes=(1,),
        conv_strides=(1,),
        mlp_hidden_sizes=(),
    )
    torso = ConvTorso(config, make_spec((1, 2, 1), np.uint8, maximum=10))
    image = tf.constant([[[[5], [10]]]], tf.uint8)
    torso(image)
    for variable in torso.variables:
        variable.assign([[[[1.0, -1.0]]]] if variable.shape.rank == 4 else [0.0, 0.75])
    # Both channels of the first pixel, 0.5, then those of the second one, 1.
    expected = [[0.5, 0.75 - 0.5, 1.0, 0.0]]
    np.testing.assert_allclose(torso(image), expected, rtol=1e-6)


def test_layers_behind_the_convolutions_end_in_a_relu():
    config = dataclasses.replace(
        CONV, conv_channels=(), conv_kernel_sizes=(), conv_strides=(), mlp_hidden_sizes=(2,)
    )
    torso = ConvTorso(config, make_spec((1, 2, 1), np.uint8, maximum=10))
    image = tf.constant([[[[5], [10]]]], tf.uint8)
    torso(image)
    for variable in torso.variables:
        variable.assign(np.diag([1.0, -1.0]) if variable.shape.rank == 2 else np.zeros(2))
    assert torso(image).numpy().tolist() == [[0.5, 0.0]]


def test_a_stack_becomes_channels():
    config = dataclasses.replace(CONV, frame_stack=4)
    torso = ConvTorso(config, make_spec((4, 9, 7), np.uint8))
    torso(tf.zeros([2, 4, 9, 7], tf.uint8))
    assert [v.shape[2] for v in torso.variables if v.name.endswith("conv_1/w:0")] == [4]


@pytest.mark.parametrize("shape", [(2, 9, 3), (9, 4, 3)])
def test_an_image_smaller_than_a_kernel_is_refused(shape):
    config = dataclasses.replace(CONV, conv_kernel_sizes=(3, 2))
    with pytest.raises(ValueError, match=r"agent\.conv_kernel_sizes"):
        ConvTorso(config, make_spec(shape, np.uint8))(tf.zeros([2, *shape], tf.uint8))
