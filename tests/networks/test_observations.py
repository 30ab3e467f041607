"""Tests of images and vectors as networks get them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.conversion import convert_observations
from apex_agents.networks import to_image, to_parts, to_vector
from apex_agents.networks.observations import is_image
from apex_agents.networks.torso_choice import require_no_normalized_images


def make_spec(shape: tuple[int, ...], dtype: Any = np.uint8, maximum: Any = 255) -> EnvironmentSpec:
    observations = specs.BoundedArray(shape, dtype, 0, maximum)
    return EnvironmentSpec(observations, actions=None, rewards=None, discounts=None)


def make_observations(*shape: int) -> np.ndarray:
    """Make a batch of two observations whose numbers are all different."""
    return np.arange(2 * np.prod(shape), dtype=np.uint8).reshape(2, *shape)


# The axes of a batch in the order height, width, channels.
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((5, 4, 3), (0, 1, 2, 3)),  # HWC
        ((3, 5, 4), (0, 2, 3, 1)),  # CHW
        ((3, 5, 3), (0, 1, 2, 3)),  # Equally many: HWC.
        ((4, 2, 9), (0, 2, 3, 1)),  # A wide image of more channels than rows.
        ((4, 4, 9), (0, 1, 2, 3)),  # A board of many planes, HWC
        ((9, 4, 4), (0, 2, 3, 1)),  # and CHW.
        ((4, 4, 4), (0, 1, 2, 3)),
        ((7, 3, 3), (0, 1, 2, 3)),  # Three columns of colours.
    ],
)
def test_channels_come_last(shape, order):
    observations = make_observations(*shape)
    image = to_image(tf.constant(observations), make_spec(shape, maximum=1))
    assert image.dtype == tf.float32
    np.testing.assert_array_equal(image, observations.transpose(order))


def test_an_image_without_channels_gets_one():
    observations = make_observations(5, 4)
    image = to_image(tf.constant(observations), make_spec((5, 4), maximum=1))
    np.testing.assert_array_equal(image, observations[..., None])


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 5, 4, 3), (2, 3, 5, 4)])
def test_stacks_become_channels_oldest_first(shape):
    observations = make_observations(*shape)
    image = to_image(tf.constant(observations), make_spec(shape, maximum=1), frame_stack=2)
    spec = make_spec(shape[1:], maximum=1)
    frames = [to_image(tf.constant(observations[:, k]), spec) for k in range(2)]
    np.testing.assert_array_equal(image, np.concatenate(frames, axis=-1))


@pytest.mark.parametrize(("shape", "frame_stack"), [((4,), 0), ((4, 3), 4), ((2, 3, 4, 5), 0)])
def test_what_is_no_image_is_refused(shape, frame_stack):
    with pytest.raises(ValueError, match=f"agent.frame_stack={frame_stack}"):
        to_image(tf.zeros([2, *shape]), make_spec(shape), frame_stack)


@pytest.mark.parametrize(
    ("dtype", "maximum", "scale"),
    [
        (np.uint8, 255, 1 / 255),
        (np.uint8, 4, 0.25),
        (np.uint8, [[1, 2], [4, 2]], 0.25),
        (np.float32, 4.0, 1.0),
        (np.float64, 4.0, 1.0),
    ],
)
def test_bytes_are_divided_by_their_maximum(dtype, maximum, scale):
    spec = make_spec((2, 2), dtype, maximum)
    observations = tf.constant([[[1, 2], [3, 4]]], dtype)
    expected = np.array([[1, 2, 3, 4]], np.float32) * scale
    for numbers in (to_vector(observations, spec), to_image(observations, spec)):
        assert numbers.dtype == tf.float32
        np.testing.assert_allclose(tf.reshape(numbers, [1, 4]), expected, rtol=1e-6)
    assert to_vector(observations, spec).shape == (1, 4)


SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 3), np.uint8),
        "speed": spaces.Box(-1, 1, (2,), np.float64),
        "walls": spaces.Box(0, 1, (1, 2), np.bool_),
    }
)


def test_parts_are_what_the_environment_has_observed():
    observation_spec, convert = convert_observations(SPACE)
    spec = EnvironmentSpec(observation_spec, actions=None, rewards=None, discounts=None)
    samples = [SPACE.sample() for _ in range(2)]
    batch = tf.constant(np.stack([convert(sample) for sample in samples]))
    parts = to_parts(batch, spec)
    for (part, part_spec), key in zip(parts, SPACE, strict=True):
        assert part.dtype == (tf.float32 if key == "speed" else tf.uint8)
        expected = np.stack([sample[key] for sample in samples])
        np.testing.assert_allclose(part, expected.astype(np.float32), rtol=1e-6)
        largest = {"camera": 255, "speed": 1, "walls": 1}[key]
        vector = to_vector(part, part_spec)
        np.testing.assert_allclose(vector, expected.reshape(2, -1) / largest, rtol=1e-6)
    camera, camera_spec = parts[0]
    assert to_image(camera, camera_spec).shape == (2, 2, 3, 1)
    with pytest.raises(ValueError, match=r"\(2, 3\), \(1, 2\)"):
        require_no_normalized_images(True, spec)


def test_an_observation_without_parts_is_the_only_one():
    observations, spec = tf.zeros([2, 5, 4]), make_spec((5, 4), np.float32)
    ((part, part_spec),) = to_parts(observations, spec)
    assert part is observations
    assert part_spec is spec


def test_what_was_normalized_is_not_scaled_again():
    spec = make_spec((2,), np.uint8, 255)
    np.testing.assert_array_equal(to_vector(tf.constant([[-1.0, 3.0]]), spec), [[-1.0, 3.0]])


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [((3, 3), np.uint8, True), ((3,), np.uint8, False), ((3, 3), np.float32, False)],
)
def test_images_are_bytes_with_two_axes(shape, dtype, expected):
    spec = make_spec(shape, dtype)
    assert is_image(spec) is expected
    require_no_normalized_images(False, spec)
    if expected:
        with pytest.raises(ValueError, match=r"agent\.normalize_observations is True"):
            require_no_normalized_images(True, spec)
    else:
        require_no_normalized_images(True, spec)
