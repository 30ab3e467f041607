"""Tests of the dueling networks."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.networks import ActionValueNetwork, make_network
from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.dueling import DuelingHead
from apex_agents.precision import computing_in

NUM_ACTIONS = 6


def make_spec(shape: tuple[int, ...], dtype: Any, maximum: float = 255) -> EnvironmentSpec:
    observations = specs.BoundedArray(shape, dtype, 0, maximum)
    return EnvironmentSpec(observations, specs.DiscreteArray(NUM_ACTIONS), None, None)


FRAMES = make_spec((4, 84, 84), np.uint8)


def make_head() -> DuelingHead:
    """Build a head over two features whose hidden layers pass positive features on.

    v = h_0 + 2 h_1 + 0.5; adv = (h_0, 2 h_0 + h_1, 3 h_0 - h_1); h = relu(features)
    """
    head = DuelingHead(hidden_size=2, num_actions=3)
    head(tf.zeros([1, 2]))
    # The hidden layers of both streams lie side by side, the value's first.
    values = {
        (2, 4): np.concatenate([np.eye(2), np.eye(2)], axis=1),
        (4,): np.zeros(4),
        (2, 1): [[1.0], [2.0]],
        (1,): [0.5],
        (2, 3): [[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]],
        (3,): np.zeros(3),
    }
    for variable in head.variables:
        variable.assign(values[tuple(variable.shape)])
    return head


def test_action_values_are_value_plus_advantage_minus_mean_advantage():
    q_values = make_head()(tf.constant([[1.0, 3.0], [-1.0, 3.0]]))
    expected = [
        # h = (1, 3): v = 1 + 6 + 0.5; adv = (1, 5, 0), mean 2.
        [7.5 + 1 - 2, 7.5 + 5 - 2, 7.5 + 0 - 2],
        # h = (0, 3): v = 0 + 6 + 0.5; adv = (0, 3, -3), mean 0.
        [6.5 + 0, 6.5 + 3, 6.5 - 3],
    ]
    np.testing.assert_allclose(q_values, expected, rtol=1e-6)


def test_a_dueling_head_of_quantiles_is_one_head_for_each_quantile():
    head, both = make_head(), DuelingHead(hidden_size=2, num_actions=3, value_shape=(2,))
    features = tf.constant([[1.0, 3.0], [-1.0, 3.0]])
    both(features)
    # The second quantile is 10 times the first. An action's quantiles are side by side.
    for variable, single in zip(both.variables, head.variables, strict=True):
        is_output = variable.shape != single.shape
        values = np.stack([single, 10 * single.numpy()], axis=-1) if is_output else single
        variable.assign(tf.reshape(values, variable.shape))
    q_values = head(features)
    np.testing.assert_allclose(both(features), tf.stack([q_values, 10 * q_values], -1), rtol=1e-5)


def test_action_values_are_the_means_of_quantiles():
    config = ApexDQNConfig(torso="mlp", frame_stack=0, head="quantile", num_quantiles=5)
    network = make_network(config, make_spec((3,), np.float32))
    observations = tf.constant([[1.0, -2.0, 3.0], [0.5, 0.0, 1.0]])
    distribution = network.return_distribution(observations)
    assert distribution.shape == (2, NUM_ACTIONS, 5)
    np.testing.assert_allclose(network(observations), np.mean(distribution, axis=2), rtol=1e-5)


def test_gradients_into_the_features_are_scaled_and_those_into_the_streams_are_not():
    head = make_head()
    features = tf.constant([[1.0, 3.0]])
    with tf.GradientTape() as tape:
        tape.watch(features)
        q_taken = head(features)[:, 1]
    (value_weights,) = [v for v in head.variables if v.shape == [2, 1]]
    feature_gradient, weight_gradient = tape.gradient(q_taken, [features, value_weights])
    # dv = (1, 2), dadv_1 = (2, 1), dmean = ((1 + 2 + 3) / 3, (0 + 1 - 1) / 3) = (2, 0).
    unscaled = np.array([[1 + 2 - 2, 2 + 1 - 0]])
    np.testing.assert_allclose(feature_gradient, unscaled / math.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(weight_gradient, [[1.0], [3.0]], rtol=1e-6)


@pytest.fixture(scope="module")
def atari_network() -> ActionValueNetwork:
    return make_network(ApexDQNConfig(), FRAMES)


def test_atari_network_has_the_layers_of_the_dueling_paper(atari_network):
    shapes = sorted(tuple(variable.shape) for variable in atari_network.variables)
    # The first is 8x8x4 with stride 4, seen as 2x2 over cells of 4x4 pixels of 4 frames.
    convolutions = [(2, 2, 64, 32), (32,), (4, 4, 32, 64), (64,), (3, 3, 64, 64), (64,)]
    hidden = [(7 * 7 * 64, 2 * 512), (2 * 512,)]
    value, advantage = [(512, 1), (1,)], [(512, NUM_ACTIONS), (NUM_ACTIONS,)]
    assert shapes == sorted(convolutions + hidden + value + advantage)
    num_parameters = sum(math.prod(shape) for shape in shapes)
    assert num_parameters == (
        (8 * 8 * 4 * 32 + 32)
        + (4 * 4 * 32 * 64 + 64)
        + (3 * 3 * 64 * 64 + 64)
        + 2 * (3136 * 512 + 512)
        + (512 * 1 + 1)
        + (512 * 6 + 6)
    )


def test_atari_network_maps_a_batch_of_frames(atari_network):
    frames = np.random.default_rng(1).integers(0, 256, [3, 4, 84, 84]).astype(np.uint8)
    q_values = atari_network(tf.constant(frames))
    assert (q_values.dtype, q_values.shape) == (tf.float32, [3, NUM_ACTIONS])
    np.testing.assert_allclose(q_values[1:2], atari_network(frames[1:2]), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_mlp_network_maps_a_batch_of_vectors(shape, dtype):
    config = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(7, 4), stream_hidden_size=3)
    network = make_network(config, make_spec(shape, dtype))
    q_values = network(tf.zeros([2, *shape], dtype))
    assert (q_values.dtype, q_values.shape) == (tf.float32, [2, NUM_ACTIONS])
    num_inputs = math.prod(shape)
    assert sum(math.prod(variable.shape) for variable in network.variables) == (
        (num_inputs * 7 + 7) + (7 * 4 + 4) + 2 * (4 * 3 + 3) + (3 * 1 + 1) + (3 * 6 + 6)
    )


CONFIGS = {
    "atari": ApexDQNConfig(),
    "mlp": ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(64,)),
    "conv": ApexDQNConfig(torso="conv", mlp_hidden_sizes=(64,), frame_stack=0),
}
SPECS = {
    "atari": FRAMES,
    "mlp": make_spec((5,), np.float32),
    "conv": make_spec((10, 10, 4), np.uint8, maximum=1),
}
OBSERVATIONS = {
    "atari": np.random.default_rng(0).integers(0, 256, [8, 4, 84, 84]).astype(np.uint8),
    "mlp": np.random.default_rng(0).normal(size=[8, 5]).astype(np.float32),
    "conv": np.random.default_rng(0).integers(0, 2, [8, 10, 10, 4]).astype(np.uint8),
}


# bfloat16 has 8 bits: a rounding changes a number by up to 2^-8. Action values are the result of 4
# products, gradients of 4 more; both factors and the result of each are rounded. If the errors are
# independent, they add up to sqrt(12) * 2^-8 = 0.014 and sqrt(24) * 2^-8 = 0.02 of a value. Units
# close to 0, whose ReLU lets through only one of the two values, add to the errors of gradients.
# The bounds leave room for that, and are below what the smallest mistake, a lost factor of 2^-0.5,
# would change: 0.29. Seeds are fixed. Computed in float32 by mistake, errors would be below 1e-5.
MAX_VALUE_DIFFERENCE = 0.02
MAX_GRADIENT_DIFFERENCE = 0.2
MIN_DIFFERENCE = 1e-5


def relative_difference(a: tf.Tensor, b: tf.Tensor) -> float:
    return float(tf.norm(a - b) / tf.norm(b))


@pytest.mark.parametrize("name", CONFIGS)
def test_variables_in_bfloat16_give_almost_the_same_values(name):
    tf.random.set_seed(0)
    observations = tf.constant(OBSERVATIONS[name])
    exact = make_network(CONFIGS[name], SPECS[name])
    rounded = make_network(CONFIGS[name], SPECS[name], tf.bfloat16)
    expected = exact(observations)
    for variable, source in zip(rounded.variables, exact.variables, strict=True):
        variable.assign(source.numpy())  # Actors assign fetched arrays so.
    assert {v.dtype for v in rounded.variables} == {tf.bfloat16, tf.float32}
    assert all(v.dtype == tf.float32 for v in rounded.variables if v.shape[-1] in (1, NUM_ACTIONS))
    q_values = rounded(observations)
    assert q_values.dtype == tf.float32
    assert MIN_DIFFERENCE < relative_difference(q_values, expected) < MAX_VALUE_DIFFERENCE


@pytest.mark.parametrize("name", CONFIGS)
def test_mixed_precision_computes_almost_the_same_gradients(name):
    tf.random.set_seed(0)
    network = make_network(CONFIGS[name], SPECS[name])
    observations = tf.constant(OBSERVATIONS[name])

    def value_and_gradients(dtype: tf.DType) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape, computing_in(dtype):
            q_values = network(observations)
            q_taken = q_values[:, 0]
        return q_values, tape.gradient(q_taken, network.trainable_variables)

    exact, exact_gradients = value_and_gradients(tf.float32)
    rounded, rounded_gradients = value_and_gradients(tf.bfloat16)
    assert {v.dtype for v in [*network.variables, *rounded_gradients]} == {tf.float32}
    assert MIN_DIFFERENCE < relative_difference(rounded, exact) < MAX_VALUE_DIFFERENCE
    for ours, expected in zip(rounded_gradients, exact_gradients, strict=True):
        assert relative_difference(ours, expected) < MAX_GRADIENT_DIFFERENCE


@pytest.mark.parametrize("name", CONFIGS)
def test_variables_have_names_of_their_own(name):
    hidden = {"atari": ["conv_1", "conv_2", "conv_3"], "mlp": ["linear_1"]}
    torso = hidden.get(name, ["conv_1", "linear_1"])
    layers = [f"torso/{layer}" for layer in torso] + ["head/hidden", "head/value", "head/advantage"]
    network = make_network(CONFIGS[name], SPECS[name])
    names = sorted(variable.name for variable in network.variables)
    assert names == sorted(f"{layer}/{array}:0" for layer in layers for array in "wb")


def test_observations_are_normalized_before_the_torso():
    config = ApexDQNConfig(torso="mlp", frame_stack=0, normalize_observations=True)
    plain = dataclasses.replace(config, normalize_observations=False)
    spec = make_spec((2,), np.float32)
    network, other = make_network(config, spec), make_network(plain, spec)
    statistics = {"count": 4, "mean": [1.0, 2.0], "variance": [4.0, 0.25]}
    for variable in network.variables:
        scope, _, name = variable.name.removesuffix(":0").rpartition("/")
        if scope == "normalization":
            variable.assign(statistics.pop(name))
    assert not statistics
    for source, target in zip(network.trainable_variables, other.variables, strict=True):
        target.assign(source)
    q_values = network(tf.constant([[3.0, 1.0]]))
    np.testing.assert_allclose(q_values, other(tf.constant([[1.0, -2.0]])), rtol=1e-5)


class HalvedTorso(snt.Module):
    """Halves observations; stands for a user's torso."""

    def __init__(self, spec: EnvironmentSpec, config: ApexDQNConfig):
        super().__init__()
        self.spec, self.config = spec, config

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        return 0.5 * observations


def test_a_torso_given_in_python_replaces_that_of_the_config():
    config, spec = ApexDQNConfig(), make_spec((3,), np.float32)
    network = make_network(config, spec, torso_fn=HalvedTorso)
    torso, head = network.return_distribution._layers
    assert (torso.spec, torso.config) == (spec, config)
    observations = tf.constant([[1.0, -2.0, 3.0]])
    np.testing.assert_allclose(network(observations), head(0.5 * observations))
    assert all(variable.name.startswith("head/") for variable in network.variables)
