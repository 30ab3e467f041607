"""Tests of policy and critic: sizes, activations, where the action enters."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import CriticNetwork, PolicyNetwork, make_networks
from apex_agents.environments import EnvironmentSpec


def make_spec(observation_shape: tuple[int, ...], action_size: int) -> EnvironmentSpec:
    return EnvironmentSpec(
        observations=specs.Array(observation_shape, np.float32),
        actions=specs.BoundedArray((action_size,), np.float32, -1.0, 1.0),
        rewards=None,
        discounts=None,
    )


def test_sizes_for_the_humanoid():
    policy, critic = make_networks(ApexDPGConfig(), make_spec((67,), 21))
    assert sum(np.prod(v.shape) for v in policy.trainable_variables) == (
        67 * 300 + 300 + 300 * 200 + 200 + 200 * 21 + 21
    )
    assert sum(np.prod(v.shape) for v in critic.trainable_variables) == (
        67 * 400 + 400 + (400 + 21) * 300 + 300 + 300 + 1
    )


def assign(network: snt.Module, *arrays: list) -> None:
    """Set the variables of a network, which are told apart by their shapes."""
    values = {np.shape(array): array for array in arrays}
    for variable in network.variables:
        variable.assign(values.pop(tuple(variable.shape)))
    assert not values


def test_policy_by_hand():
    policy = PolicyNetwork((2, 3), action_size=1)
    policy(tf.zeros([1, 1]))
    assign(
        policy,
        # First and second hidden layer, whose last unit is not used, and output layer.
        *([[1.0, -2.0]], [0.0, 0.5]),
        *([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0]], [0.1, 0.0, 0.0]),
        *([[2.0], [3.0], [4.0]], [-0.2]),
    )
    # s = 0.5: h1 = tanh(0.5, -0.5), of which the first second-layer unit sees 0 + 0.1 and the
    # second one -2 * tanh(0.5), cut off by the ReLU.
    expected = np.tanh(2.0 * 0.1 + 3.0 * 0.0 - 0.2)
    np.testing.assert_allclose(policy(tf.constant([[0.5]])), [[expected]], atol=1e-7)
    # s = 1: h1 = tanh(1, -1.5); h2 = relu(tanh(1) - tanh(1.5) + 0.1, -tanh(1) - tanh(1.5)).
    expected = np.tanh(2.0 * max(np.tanh(1.0) - np.tanh(1.5) + 0.1, 0.0) - 0.2)
    np.testing.assert_allclose(policy(tf.constant([[1.0]])), [[expected]], rtol=1e-5)


def make_critic() -> CriticNetwork:
    critic = CriticNetwork((2, 3))
    critic(tf.zeros([1, 1]), tf.zeros([1, 2]))
    assign(
        critic,
        # The last unit of each hidden layer is not used.
        *([[2.0, 0.0]], [0.5, 0.0]),
        # Rows: the state's features, then both elements of the action, not squashed.
        [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, -5.0, 0.0]],
        [0.0, 0.25, 0.0],
        *([[10.0], [1.0], [1.0]], [7.0]),
    )
    return critic


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_critic_by_hand(dtype):
    action = tf.constant([[0.4, -1.0], [-1.0, 1.0]], dtype)
    q_value = make_critic()(tf.constant([[0.25], [0.25]]), action)
    feature = np.tanh(2.0 * 0.25 + 0.5)
    expected = [10.0 * (feature + 3.0 * 0.4) + (5.0 + 0.25) + 7.0, 7.0]
    np.testing.assert_allclose(q_value, expected, rtol=1e-6)
    assert q_value.dtype == tf.float32


def test_actions_are_in_bounds_and_begin_close_to_zero():
    policy, critic = make_networks(ApexDPGConfig(), make_spec((3,), 2))
    observation = tf.constant(np.random.default_rng(0).normal(size=(100, 3)), tf.float32)
    action = policy(observation)
    assert np.abs(action).max() < 0.1
    assert np.abs(critic(observation, action)).max() < 0.2
    policy.trainable_variables[0].assign_add(tf.fill(policy.trainable_variables[0].shape, 100.0))
    assert np.abs(policy(1000.0 * observation)).max() <= 1.0


@pytest.mark.parametrize("shape", [(), (3, 4)])
def test_observations_of_any_shape_are_flattened(shape):
    policy, critic = make_networks(ApexDPGConfig(), make_spec(shape, 2))
    observation = tf.zeros([5, *shape])
    assert policy(observation).shape == (5, 2)
    assert critic(observation, policy(observation)).shape == (5,)
