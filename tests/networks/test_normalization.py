"""Tests of the running normalization against numpy, and of its place in an update."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.networks.normalization import RunningNormalization, update_statistics

RANDOM = np.random.default_rng(0)
# Batches of different sizes, means and spreads.
BATCHES = [
    (mean + scale * RANDOM.normal(size=(size, 2, 3))).astype(np.float32)
    for size, mean, scale in ((4, 0.0, 1.0), (1, 5.0, 1.0), (7, -3.0, 10.0), (2, 100.0, 0.1))
]

EAGER_AND_GRAPH = pytest.mark.parametrize(
    "run", [lambda function: function, tf.function], ids=["eager", "tf.function"]
)


@EAGER_AND_GRAPH
def test_statistics_are_those_of_all_batches_together(run):
    normalization = RunningNormalization([2, 3])
    update = run(normalization.update)
    for i, batch in enumerate(BATCHES, 1):
        update(tf.constant(batch))
        seen = np.concatenate(BATCHES[:i]).astype(np.float64)
        assert int(normalization.count) == len(seen)
        np.testing.assert_allclose(normalization.mean, seen.mean(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(normalization.variance, seen.var(axis=0), rtol=1e-4)


@EAGER_AND_GRAPH
def test_an_element_whose_square_is_too_large_is_left_out(run):
    normalization = RunningNormalization([2])
    update = run(normalization.update)
    update(tf.constant([[1.0, 2.0], [3.0, 6.0]]))
    update(tf.constant([[1e30, 4.0], [2.0, 4.0]]))
    np.testing.assert_allclose(normalization.mean, [2.0, 4.0])
    np.testing.assert_allclose(normalization.variance, [1.0, (2.0**2 + 2.0**2) / 4])


def test_before_the_first_update_numbers_are_only_clipped():
    numbers = tf.constant([[-11.0, -0.5, 2.0, 1e30]])
    np.testing.assert_allclose(RunningNormalization([4])(numbers), [[-10.0, -0.5, 2.0, 10.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_output_has_a_mean_of_0_and_a_variance_of_1(dtype):
    observations = tf.constant([[10], [20], [30], [20]], dtype)
    normalization = RunningNormalization([1])
    normalization.update(observations)
    output = normalization(observations)
    # The mean is 20, the variance 50.
    expected = [[-10 / np.sqrt(50)], [0.0], [10 / np.sqrt(50)], [0.0]]
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)
    assert output.dtype == tf.float32


def test_an_element_that_never_changed_is_0_and_another_value_of_it_is_clipped():
    normalization = RunningNormalization([1])
    for _ in range(3):
        normalization.update(tf.fill([8, 1], 3.3))
    output = normalization(tf.constant([[3.3], [4.0], [3.0]]))
    np.testing.assert_allclose(output, [[0.0], [10.0], [-10.0]], atol=0.01)


@pytest.mark.parametrize("constant", [0.0, 3.3, -1000.37, 1.7e9, 1e15])
def test_rounding_of_an_element_that_never_changed_stays_small(constant):
    normalization = RunningNormalization([1])
    for size in (8, 5, 64):
        normalization.update(tf.fill([size, 1], constant))
    rounded = [[(1 - 1e-6) * constant], [(1 + 1e-6) * constant], [constant + 1e-6]]
    assert np.abs(normalization(tf.constant(rounded))).max() <= 0.11
    # A tenth more is another value.
    output = normalization(tf.constant([[1.1 * constant + 0.1]]))
    np.testing.assert_allclose(np.abs(output), [[10.0]])


def test_a_small_signal_on_a_large_mean_is_normalized():
    normalization = RunningNormalization([1])
    observations = tf.constant([[1000.0], [1000.5], [1001.0], [1000.5]])
    normalization.update(observations)
    expected = [[-np.sqrt(2)], [0.0], [np.sqrt(2)], [0.0]]  # A variance of 1/8.
    np.testing.assert_allclose(normalization(observations), expected, rtol=1e-3, atol=1e-3)


def test_statistics_are_not_trained_and_stop_no_gradient():
    normalization = RunningNormalization([1])
    normalization.update(tf.constant([[1.0], [5.0]]))  # A mean of 3, a variance of 4.
    observations = tf.constant([[2.0]])
    with tf.GradientTape() as tape:
        tape.watch(observations)
        output = normalization(observations)
    gradient, *others = tape.gradient(output, [observations, *normalization.variables])
    np.testing.assert_allclose(gradient, [[0.5]])
    assert others == [None] * 3
    assert snt.allow_empty_variables(normalization).trainable_variables == ()


class Scaled(snt.Module):
    """Normalizes a hundredth of one half of what it observes."""

    def __init__(self):
        super().__init__()
        self.normalization = RunningNormalization([2])

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        return self.normalization(observations[:, 2:] / 100.0)


@EAGER_AND_GRAPH
def test_statistics_are_those_of_what_the_network_normalizes(run):
    network = Scaled()
    batch = tf.constant([[1.0, 2.0, 300.0, 500.0], [5.0, 6.0, 500.0, 900.0]])
    for _ in range(2):
        run(lambda: update_statistics(network, batch))()
    update_statistics(snt.Linear(2), batch)  # It has none.
    assert int(network.normalization.count) == 4
    np.testing.assert_allclose(network.normalization.mean, [4.0, 7.0], rtol=1e-6)
    np.testing.assert_allclose(network.normalization.variance, [1.0, 4.0], rtol=1e-6)
    network(batch)  # Acting is no update.
    assert int(network.normalization.count) == 4


def test_a_normalization_that_would_learn_nothing_is_an_error():
    network = snt.Sequential([lambda observations: observations])
    network.unused = RunningNormalization([2])
    with pytest.raises(ValueError, match=r"\['running_normalization'\]"):
        update_statistics(network, tf.zeros([3, 2]))
    network.unused(tf.ones([3, 2]))  # Neither does it learn later.
    assert int(network.unused.count) == 0
