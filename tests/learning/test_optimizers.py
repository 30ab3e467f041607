"""Tests of the optimizers, and of taking no step where a gradient is not finite."""

import math

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.learning.optimizers import AdaGrad, Adam, GuardedOptimizer, RMSProp

LEARNING_RATE = 0.1
EAGER_AND_GRAPH = pytest.mark.parametrize(
    "run", [lambda function: function, tf.function], ids=["eager", "tf.function"]
)


class Pair:
    """Two optimizers, of a vector and of a number."""

    def __init__(self):
        self.vector, self.number = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
        self.rmsprop = snt.optimizers.RMSProp(LEARNING_RATE, decay=0.0, epsilon=0.0)
        self.adam = snt.optimizers.Adam(LEARNING_RATE)
        self.guarded = GuardedOptimizer((self.rmsprop, [self.vector]), (self.adam, [self.number]))

    def apply(self, vector_gradient: tf.Tensor, number_gradient: tf.Tensor) -> None:
        norms = [tf.norm(vector_gradient), tf.norm(number_gradient)]
        self.guarded.apply([[vector_gradient], [number_gradient]], norms)

    def variables(self) -> list[bytes]:
        """Return the bits of all variables that a step writes."""
        slots = [*self.rmsprop.variables, *self.adam.variables]
        return [variable.numpy().tobytes() for variable in (self.vector, self.number, *slots)]


@EAGER_AND_GRAPH
def test_each_optimizer_descends_its_own_gradients(run):
    pair = Pair()
    run(pair.apply)(tf.constant([-5.0, 7.0]), tf.constant(9.0))
    # The first steps of both are the learning rate in the direction of each gradient's sign.
    np.testing.assert_allclose(pair.vector, [1.0 + 0.1, 2.0 - 0.1], rtol=1e-5)
    np.testing.assert_allclose(pair.number, 3.0 - 0.1, rtol=1e-5)
    assert int(pair.guarded.num_skipped) == 0


@EAGER_AND_GRAPH
@pytest.mark.parametrize(
    ("vector_gradient", "number_gradient"),
    [
        ([math.nan, 1.0], 1.0),
        ([1.0, math.inf], 1.0),
        ([1.0, 1.0], -math.inf),
        ([1.0, 1.0], math.nan),
        ([math.inf, -math.inf], math.nan),
        ([1e20, 1.0], 1.0),  # 1e40 is more than float32 holds.
        ([1.0, 1.0], 1e20),
    ],
)
def test_one_gradient_that_is_not_finite_holds_back_all(vector_gradient, number_gradient, run):
    pair = Pair()
    apply = run(pair.apply)
    for _ in range(2):
        before = pair.variables()
        apply(tf.constant(vector_gradient), tf.constant(number_gradient))
        assert pair.variables() == before
        apply(tf.constant([1.0, 1.0]), tf.constant(1.0))
        assert pair.variables() != before
    assert int(pair.guarded.num_skipped) == 2


@EAGER_AND_GRAPH
def test_large_gradients_are_no_reason_to_skip(run):
    pair = Pair()
    # The squares are 1e38, less than the largest float32, 3.4e38.
    run(pair.apply)(tf.constant([1e19, 1.0]), tf.constant(1e19))
    assert int(pair.guarded.num_skipped) == 0
    assert float(pair.number) == pytest.approx(3.0 - 0.1)


@EAGER_AND_GRAPH
@pytest.mark.parametrize(
    "make",
    [
        lambda rate: Adam(lambda: rate),
        lambda rate: RMSProp(lambda: rate, 0.5, epsilon=0.0, centered=True),
        lambda rate: RMSProp(lambda: rate, 0.5, epsilon=0.0),
    ],
)
def test_a_variable_on_which_the_loss_does_not_depend_stays_as_it_is(make, run):
    used, unused = tf.Variable(1.0), tf.Variable(2.0)
    guarded = GuardedOptimizer((make(LEARNING_RATE), [unused, used]))
    run(lambda: guarded.apply([[None, tf.constant(1.0)]], [tf.constant(1.0)]))()
    assert float(used) < 1.0 and float(unused) == 2.0


def test_slots_exist_before_the_first_step():
    pair = Pair()
    assert len(pair.rmsprop.variables) == 2  # Momentum and mean square.
    assert len(pair.adam.variables) == 3  # Two moments and the number of steps.
    assert not any(np.any(slot.numpy()) for slot in pair.adam.variables)


def random_steps(optimizer: snt.Optimizer, num_steps: int = 50) -> np.ndarray:
    """Descend the same random gradients, of sizes from 1e-4 to 1e4."""
    rng = np.random.default_rng(0)
    parameters = [tf.Variable(tf.ones([3, 4])), tf.Variable(tf.ones([5]))]
    apply = tf.function(optimizer.apply)
    for _ in range(num_steps):
        scale = np.float32(10.0 ** rng.uniform(-4, 4))
        shapes = [parameter.shape for parameter in parameters]
        gradients = [scale * rng.normal(size=shape).astype(np.float32) for shape in shapes]
        apply([tf.constant(gradient) for gradient in gradients], parameters)
    return np.concatenate([np.ravel(parameter) for parameter in parameters])


@pytest.mark.parametrize(
    ("fused", "sonnets"),
    [
        (
            RMSProp(lambda: LEARNING_RATE, decay=0.9, epsilon=1e-6, centered=True),
            snt.optimizers.RMSProp(LEARNING_RATE, decay=0.9, epsilon=1e-6, centered=True),
        ),
        (
            RMSProp(lambda: LEARNING_RATE, decay=0.9, epsilon=1e-6),
            snt.optimizers.RMSProp(LEARNING_RATE, decay=0.9, epsilon=1e-6),
        ),
        (
            Adam(lambda: LEARNING_RATE, epsilon=1e-3),
            snt.optimizers.Adam(LEARNING_RATE, epsilon=1e-3),
        ),
    ],
    ids=["centered RMSProp", "RMSProp", "Adam"],
)
def test_fused_kernels_compute_what_sonnet_does(fused, sonnets):
    np.testing.assert_allclose(random_steps(fused), random_steps(sonnets), rtol=2e-4, atol=2e-4)
    assert [v.shape for v in fused.variables] == [v.shape for v in sonnets.variables]
    for ours, theirs in zip(fused.variables, sonnets.variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decay", [0.5, 0.95, 0.99])
def test_steady_gradients_of_any_size_leave_the_parameters_finite(decay):
    rng = np.random.default_rng(0)
    sizes = tf.constant(np.exp(rng.uniform(-5, 5, 1000)).astype(np.float32))
    parameter = tf.Variable(tf.zeros(1000))
    optimizer = RMSProp(lambda: LEARNING_RATE, decay, epsilon=1.5e-7, centered=True)
    optimizer.apply([tf.zeros(1000)], [parameter])  # Makes the slots, outside of the graph below.

    @tf.function
    def descend() -> None:
        for _ in tf.range(1000):
            noise = 1.0 + 1e-4 * tf.random.normal([1000])
            optimizer.apply([sizes * noise], [parameter])

    descend()
    assert np.isfinite(parameter).all()


@EAGER_AND_GRAPH
def test_adagrad_divides_by_the_root_of_all_squares_so_far(run):
    variable, unused = tf.Variable([1.0, 2.0]), tf.Variable(5.0)
    optimizer = AdaGrad(LEARNING_RATE, epsilon=0.5)
    guarded = GuardedOptimizer((optimizer, [variable, unused]))

    def apply(gradient: tf.Tensor) -> None:
        guarded.apply([[gradient, None]], [tf.norm(gradient)])

    step = run(apply)
    step(tf.constant([3.0, -1.0]))
    np.testing.assert_allclose(variable, [1.0 - 0.1 * 3 / 3.5, 2.0 + 0.1 / 1.5], rtol=1e-6)
    step(tf.constant([4.0, 0.0]))
    expected = [1.0 - 0.1 * 3 / 3.5 - 0.1 * 4 / 5.5, 2.0 + 0.1 / 1.5]
    np.testing.assert_allclose(variable, expected, rtol=1e-6)
    assert float(unused) == 5.0
