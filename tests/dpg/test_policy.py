"""Tests of the policy: actions, noise, and the values of its output."""

import math

import dm_env
import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig, NoiseConfig
from apex_agents.dpg.networks import DPGNetworks
from apex_agents.dpg.policy import GaussianNoisePolicy, noise_ladder
from apex_agents.environments import EnvironmentConfig, make_vector_environment, restart_batch


class Halving(snt.Module):
    """pi(s) = scale * s."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(0.5)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return self.scale * observation


class Sum(snt.Module):
    """q(s, a) = 100 * s_0 + offset + sum_i (i + 1) * a_i."""

    def __init__(self):
        super().__init__()
        self.offset = tf.Variable(7.0)

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        factors = tf.range(1.0, action.shape[-1] + 1.0)
        return 100 * observation[:, 0] + self.offset + tf.linalg.matvec(action, factors)


def make_policy(noise_scale: float, seed: int = 0) -> GaussianNoisePolicy:
    return GaussianNoisePolicy(DPGNetworks(Halving(), Sum()), [noise_scale], seed)


def observe(*rows: tuple[float, ...]) -> dm_env.TimeStep:
    """Make the first time step of environments from an observation each."""
    return restart_batch(np.array(rows, np.float32))


def test_without_noise_the_action_is_that_of_the_network():
    policy = make_policy(noise_scale=0.0)
    for _ in range(20):
        action, q_taken, value, _ = policy(observe((0.4, -1.0), (1.0, 0.2)))
        np.testing.assert_allclose(action, [[0.2, -0.5], [0.5, 0.1]])
        expected = [40 + 7 + 0.2 + 2 * -0.5, 100 + 7 + 0.5 + 2 * 0.1]
        np.testing.assert_allclose(q_taken, expected, rtol=1e-6)
        np.testing.assert_array_equal(value, q_taken)
    assert (action.dtype, action.shape, q_taken.shape) == (np.float32, (2, 2), (2,))


def test_noise_is_normal_in_each_element_of_each_env():
    policy = make_policy(noise_scale=0.1)
    num_draws = 10_000
    timestep = observe((0.0, 0.8), (-0.6, 0.2))
    actions = np.array([policy(timestep).action for _ in range(num_draws)])
    noise = actions - 0.5 * timestep.observation
    # Nothing is clipped: the bounds are 6 standard deviations away. The seed is fixed, and so the
    # outcome; bounds are five standard errors: 0.1 / sqrt(n) of a mean, 0.1 / sqrt(2 n) of a
    # standard deviation, sqrt(24 / n) of a kurtosis, 1 / sqrt(n) of a correlation.
    error = 1 / math.sqrt(num_draws)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=5 * 0.1 * error)
    np.testing.assert_allclose(noise.std(axis=0), 0.1, atol=5 * 0.1 * error / math.sqrt(2))
    kurtosis = (noise**4).mean(axis=0) / noise.std(axis=0) ** 4
    np.testing.assert_allclose(kurtosis, 3.0, atol=5 * math.sqrt(24) * error)
    # Independent from element to element, environment to environment, and step to step.
    flat = noise.reshape(num_draws, 4)
    correlations = np.corrcoef(np.concatenate([flat[1:], flat[:-1]], axis=1).T)
    np.testing.assert_allclose(correlations, np.eye(8), atol=5 * error)


def test_each_environment_has_its_own_noise_scale():
    policy = GaussianNoisePolicy(DPGNetworks(Halving(), Sum()), [0.0, 0.01, 0.1], seed=0)
    timestep = observe((0.0, 0.8), (-0.6, 0.2), (0.2, 0.4))
    noise = np.array([policy(timestep).action for _ in range(2000)]) - 0.5 * timestep.observation
    # Five standard errors of the standard deviation of 2000 draws: 5 / sqrt(4000) of it.
    expected = [[0.0] * 2, [0.01] * 2, [0.1] * 2]
    np.testing.assert_allclose(noise.std(axis=0), expected, rtol=5 / math.sqrt(4000), atol=1e-7)
    assert policy.exploration["noise_scale"].tolist() == [0.0, 0.01, 0.1]


def test_actions_stay_in_bounds():
    policy = make_policy(noise_scale=0.3)
    actions = np.array([policy(observe((2.0, -1.9, 0.0))).action[0] for _ in range(2000)])
    assert np.abs(actions).max() == 1.0
    # pi(s) is 1: half of the noise is cut off. -0.95: what is beyond -0.05 / 0.3 = -1/6 standard
    # deviations, 43.4 %. 0: 0.09 %. A share of 2000 draws has a standard deviation below 0.0112.
    at_bounds = (np.abs(actions) == 1.0).mean(axis=0)
    np.testing.assert_allclose(at_bounds, [0.5, 0.434, 0.0009], atol=5 * 0.0112)


def test_output_has_the_values_of_the_noisy_action_and_of_the_noiseless_one():
    policy = make_policy(noise_scale=0.3)
    action, q_taken, value, _ = policy(observe((0.4, -1.0), (1.0, 0.2)))
    assert np.abs(action - [[0.2, -0.5], [0.5, 0.1]]).min() > 1e-4
    taken = [40 + 7 + action[0, 0] + 2 * action[0, 1], 100 + 7 + action[1, 0] + 2 * action[1, 1]]
    np.testing.assert_allclose(q_taken, taken, rtol=1e-6)
    np.testing.assert_allclose(value, [40 + 7 + 0.2 - 1.0, 100 + 7 + 0.5 + 0.2], rtol=1e-6)


def test_seed_decides_the_noise():
    def act(seed: int) -> list:
        policy = make_policy(0.3, seed)
        return [policy(observe((0.0, 0.0))).action.tolist() for _ in range(5)]

    assert act(1) == act(1)
    assert act(1) != act(2)


def test_variables_are_those_of_the_networks_in_use():
    policy = make_policy(noise_scale=0.0)
    policy(observe((1.0,)))
    policy.variables["policy"][0].assign(-0.5)
    policy.variables["critic"][0].assign(1000.0)
    action, q_taken, *_ = policy(observe((1.0,)))
    assert (action.tolist(), q_taken.tolist()) == ([[-0.5]], [100 + 1000 - 0.5])


@pytest.mark.parametrize(
    ("least", "num_envs", "expected"),
    [
        (None, 3, [1.0, 1.0, 1.0]),
        (0.0, 3, [1.0, 0.5, 0.0]),
        (1 / 32, 32, [i / 32 for i in range(32, 0, -1)]),  # Tassa et al. 2018.
        (0.25, 1, [1.0]),
    ],
)
def test_ladder_of_noise_scales(least, num_envs, expected):
    config = NoiseConfig(noise_scale=1.0, min_noise_scale=least)
    np.testing.assert_allclose(noise_ladder(config, num_envs), expected)


@pytest.fixture(scope="module")
def spec():
    environment = make_vector_environment(EnvironmentConfig("toy", "point_mass"), 1, seed=0)
    environment.close()
    return environment.spec


def test_builder_gives_each_environment_its_rung_of_the_ladder(spec):
    exploration = NoiseConfig(noise_scale=1.0, min_noise_scale=0.25)
    builder = ApexDPGBuilder(ApexDPGConfig(exploration=exploration))
    policy = builder.make_policy(spec, env_indices=[1, 2], num_envs=4, seed=0)
    np.testing.assert_allclose(policy.exploration["noise_scale"], [0.75, 0.5])


def test_builder_explores_with_the_noise_of_the_config(spec):
    builder = ApexDPGBuilder(ApexDPGConfig(exploration=NoiseConfig(noise_scale=0.2)))
    policy = builder.make_policy(spec, env_indices=[2, 3], num_envs=4, seed=0)
    actions = np.array([policy(observe((0.0,), (0.0,))).action for _ in range(1000)])
    # The network's output layer begins close to 0; 2000 draws: 5 * 0.2 / sqrt(4000) = 0.016.
    assert actions.std() == pytest.approx(0.2, abs=0.016)


def test_builder_evaluates_without_noise(spec):
    policy = ApexDPGBuilder(ApexDPGConfig()).make_evaluation_policy(spec, num_envs=3, seed=0)
    timestep = observe((-1.0,), (0.0,), (0.5,))
    first = policy(timestep)
    assert policy.exploration["noise_scale"].tolist() == [0.0, 0.0, 0.0]
    for _ in range(10):
        np.testing.assert_array_equal(policy(timestep).action, first.action)
    np.testing.assert_array_equal(first.q_taken, first.value)
