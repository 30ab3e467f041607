"""Tests of the losses against numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.learning.categorical import categorical_td_loss
from apex_agents.learning.losses import (
    TDLoss,
    check_shapes,
    double_q_values,
    importance_weights,
    munchausen_values,
    quantile_td_loss,
    td_loss,
)
from apex_agents.learning.policy_losses import dpg_loss

# Rows: the selector's best action (1) is not the value network's (2); termination; the selector's
# best action (0) has the lowest value of all.
Q_TM1 = [[1.0, 2.0, 3.0], [1.0, -4.0, 0.5], [0.0, 0.0, -1.5]]
A_TM1 = [1, 0, 2]
R_T = [0.5, -1.0, 2.0]
D_T = [0.9, 0.0, 0.5]
Q_T_VALUE = [[10.0, 20.0, 30.0], [70.0, 80.0, 90.0], [-8.0, 5.0, 6.0]]
Q_T_SELECTOR = [[0.0, 5.0, 1.0], [1.0, 2.0, 3.0], [4.0, 3.0, 2.0]]
TD_ERROR = [
    (0.5 + 0.9 * 20.0) - 2.0,
    (-1.0 + 0.0) - 1.0,
    (2.0 + 0.5 * -8.0) - (-1.5),
]
LOSS = [0.5 * 16.5 * 16.5, 0.5 * 2.0 * 2.0, 0.5 * 0.5 * 0.5]


def make_inputs() -> list[tf.Tensor]:
    floats = [tf.constant(rows) for rows in (Q_TM1, R_T, D_T, Q_T_VALUE, Q_T_SELECTOR)]
    return [floats[0], tf.constant(A_TM1, tf.int32), *floats[1:]]


def double_q_loss(q_tm1, a_tm1, r_t, d_t, q_t_value, q_t_selector) -> TDLoss:
    q_taken, bootstrap_value = double_q_values(q_tm1, a_tm1, q_t_value, q_t_selector)
    return td_loss(q_taken, r_t, d_t, bootstrap_value)


def check_loss_and_gradients(loss_fn, inputs, loss, td_error, gradient):
    """Check a loss, and that gradients flow into its first argument only."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = loss_fn(*inputs)
    np.testing.assert_allclose(result.loss, loss, rtol=1e-5)
    np.testing.assert_allclose(result.td_error, td_error, rtol=1e-5)
    first, *others = tape.gradient(result.loss, inputs)
    np.testing.assert_allclose(first, gradient, rtol=1e-5, atol=1e-7)
    assert others == [None] * len(others)


def test_double_q_loss_selects_with_one_network_and_evaluates_with_the_other():
    q_tm1, a_tm1, *others = make_inputs()

    def loss_of_estimate(q_tm1, *others):
        return double_q_loss(q_tm1, a_tm1, *others)

    gradient = [[0.0, -16.5, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.5]]
    check_loss_and_gradients(loss_of_estimate, [q_tm1, *others], LOSS, TD_ERROR, gradient)


def test_td_loss():
    inputs = [tf.constant(row) for row in ([1.0, 3.0], [0.5, -1.0], [0.9, 0.0], [10.0, 99.0])]
    td_error = [0.5 + 0.9 * 10.0 - 1.0, -1.0 - 3.0]
    loss = [0.5 * 8.5 * 8.5, 0.5 * 4.0 * 4.0]
    check_loss_and_gradients(td_loss, inputs, loss, td_error, [-8.5, 4.0])


# Two quantiles, at 0.25 and 0.75. First row: targets 0 + 1 * (1, 3) and estimates (1, 2.5);
# second row, after termination: both targets are -2, estimates (-2.5, 2).
Z_TM1, Z_T = [[1.0, 2.5], [-2.5, 2.0]], [[1.0, 3.0], [50.0, 60.0]]
Z_R_T, Z_D_T = [0.0, -2.0], [1.0, 0.0]
# Errors of row 1: estimate 1: 0 and 2; estimate 2.5: -1.5 and 0.5. Huber: 0, 1.5; 1.0, 0.125.
# Row 2: estimate -2.5: 0.5 twice; estimate 2: -4 twice. Huber: 0.125; 3.5.
Z_LOSS = [
    (0.25 * 0.0 + 0.25 * 1.5) / 2 + (0.25 * 1.0 + 0.75 * 0.125) / 2,
    0.25 * 0.125 + 0.25 * 3.5,
]
Z_TD_ERROR = [(1.0 + 3.0) / 2 - (1.0 + 2.5) / 2, -2.0 - (-2.5 + 2.0) / 2]
# The derivative of Huber's loss is the error, at most 1 and at least -1.
Z_GRADIENT = [
    [-(0.25 * 0.0 + 0.25 * 1.0) / 2, -(0.25 * -1.0 + 0.75 * 0.5) / 2],
    [-0.25 * 0.5, -0.25 * -1.0],
]


def test_quantile_td_loss():
    inputs = [tf.constant(rows) for rows in (Z_TM1, Z_R_T, Z_D_T, Z_T)]
    check_loss_and_gradients(quantile_td_loss, inputs, Z_LOSS, Z_TD_ERROR, Z_GRADIENT)


@pytest.mark.parametrize("target", [np.inf, -np.inf, np.nan, 3e38])
def test_an_infinite_quantile_loss_has_no_gradient(target):
    z_tm1 = tf.constant([[0.0, -3e38], [1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(z_tm1)
        targets = tf.constant([target, 1.0])
        loss = quantile_td_loss(z_tm1, targets, tf.ones([2]), tf.zeros([2, 2])).loss
    gradient = tape.gradient(loss, z_tm1).numpy()
    assert not np.isfinite(loss[0])
    assert np.isnan(gradient[0]).any()
    assert np.isfinite(gradient[1]).all()


def test_one_quantile_is_half_of_hubers_loss():
    inputs = [tf.constant(rows) for rows in ([[1.0], [3.0]], R_T[:2], D_T[:2], [[1.4], [9.0]])]
    loss, td_error = quantile_td_loss(*inputs)
    errors = [0.5 + 0.9 * 1.4 - 1.0, -1.0 - 3.0]
    np.testing.assert_allclose(td_error, errors, rtol=1e-6)
    np.testing.assert_allclose(loss, [0.5 * 0.5 * errors[0] ** 2, 0.5 * (4.0 - 0.5)], rtol=1e-6)


def test_double_quantile_values_and_loss_are_those_of_an_independent_implementation():
    # rlax 0.1.9, quantile_q_learning with huber_param=1, on these inputs `[B, N, A]`; the selector
    # was the mean of its quantiles.
    q_tm1 = [
        [[0.0, 0.6], [-0.55, -1.78], [-0.91, -1.98], [0.12, 2.68]],
        [[-0.98, -1.24], [0.98, 0.71], [0.21, -1.86], [-0.06, 1.39]],
        [[-2.69, -0.92], [-3.8, -2.58], [-3.68, -0.47], [-2.53, 0.54]],
    ]
    q_t = [
        [[0.31, -0.37], [-5.03, -1.08], [-0.1, 0.23], [-3.06, -0.96]],
        [[-1.96, -1.62], [2.12, -1.62], [-0.07, 1.77], [-1.17, -0.22]],
        [[0.22, 0.13], [-2.45, 0.15], [2.72, -3.09], [1.72, 0.24]],
    ]
    selector = [
        [[-1.28, 4.0], [1.52, -2.4], [0.15, 1.15], [-0.38, 1.37]],
        [[-0.13, 1.33], [2.88, -1.35], [0.41, -0.93], [0.25, -2.37]],
        [[-1.16, -0.39], [1.8, 2.29], [-2.65, -1.59], [1.29, -3.98]],
    ]
    q_tm1, q_t, selector = [np.array(q, np.float32).swapaxes(1, 2) for q in (q_tm1, q_t, selector)]
    online = tf.constant(q_tm1)
    with tf.GradientTape() as tape:
        tape.watch(online)
        taken, value = double_q_values(
            online, tf.constant([1, 0, 1]), tf.constant(q_t), tf.constant(selector.mean(axis=2))
        )
        returns, discounts = tf.constant([-0.93, -0.19, 2.51]), tf.constant([0.9, 0.0, 0.5])
        loss = quantile_td_loss(taken, returns, discounts, value).loss
    np.testing.assert_allclose(loss, [2.0080488, 0.48881257, 5.4833617], rtol=1e-5)
    gradient = tape.gradient(loss, online)
    np.testing.assert_allclose(gradient[0, 1], [0.875, -0.12096876, -0.30953127, 0.125], rtol=1e-5)
    np.testing.assert_allclose(gradient[1, 0], [-0.09875, 0.625, 0.15, 0.01625], rtol=1e-5)
    np.testing.assert_allclose(gradient[2, 1], [-0.125, -0.375, -0.625, -0.81921875], rtol=1e-5)
    assert not np.any(gradient[0, 0]) and not np.any(gradient[1, 1]) and not np.any(gradient[2, 0])


# Atoms 0, 2 and 4. First row: returns 1 + 0.5 * (0, 2, 4) = 1, 2, 3 with probabilities 1/4, 1/4 and
# 1/2. Second row, after termination: all returns are 7, beyond the last atom.
ATOMS = [0.0, 2.0, 4.0]
PROBABILITIES_T = [[0.25, 0.25, 0.5], [0.2, 0.2, 0.6]]
PROBABILITIES_TM1 = [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]
PROJECTED = [[0.5 * 0.25, 0.5 * 0.25 + 0.25 + 0.5 * 0.5, 0.5 * 0.5], [0.0, 0.0, 1.0]]


def test_categorical_td_loss():
    logits_tm1, logits_t = [np.log(np.float32(p)) for p in (PROBABILITIES_TM1, PROBABILITIES_T)]
    inputs = [logits_tm1 + 5.0, [1.0, 7.0], [0.5, 0.0], logits_t - 3.0, ATOMS]
    inputs = [tf.constant(rows, tf.float32) for rows in inputs]
    loss = [
        -(0.125 * np.log(0.5) + 0.625 * np.log(0.3) + 0.25 * np.log(0.2)),
        -np.log(0.8),
    ]
    td_error = [
        (0.25 * 1.0 + 0.25 * 2.0 + 0.5 * 3.0) - (0.3 * 2.0 + 0.2 * 4.0),
        7.0 - (0.1 * 2.0 + 0.8 * 4.0),
    ]
    # The gradient of the cross-entropy by the logits.
    gradient = np.array(PROBABILITIES_TM1) - np.array(PROJECTED)
    check_loss_and_gradients(categorical_td_loss, inputs, loss, td_error, gradient)


def test_categorical_td_loss_is_that_of_an_independent_implementation():
    # rlax 0.1.9, categorical_td_learning, with atoms -2, -1, 0, 1, 2.
    logits_tm1 = [
        [-0.05, 1.34, -0.68, 2.1, -0.01],
        [1.17, -2.58, 0.69, -3.38, -4.07],
        [-0.61, -1.8, 0.33, 4.49, -1.66],
    ]
    logits_t = [
        [1.38, -0.65, -0.74, -0.5, 3.05],
        [-0.86, -0.61, 0.71, -0.24, -0.39],
        [-2.23, -0.02, -0.89, 2.33, 1.31],
    ]
    returns, discounts = tf.constant([-0.93, -0.19, 2.51]), tf.constant([0.9, 0.0, 0.5])
    atoms = tf.constant([-2.0, -1.0, 0.0, 1.0, 2.0])
    loss, _ = categorical_td_loss(
        tf.constant(logits_tm1), returns, discounts, tf.constant(logits_t), atoms
    )
    np.testing.assert_allclose(loss, [1.2908195, 1.6070136, 6.154439], rtol=1e-5)


# Two rows of two action elements; clipped to 1 are the first and the last element of dq/da.
PI_TM1 = [[0.5, -0.25], [0.1, 0.2]]
DQDA_TM1 = [[3.0, -0.5], [0.25, -4.0]]


def test_dpg_loss():
    a_tm1, dqda_tm1 = tf.constant(PI_TM1), tf.constant(DQDA_TM1)
    loss = dpg_loss(a_tm1, dqda_tm1, max_dqda=1.0)
    expected = [-(1.0 * 0.5 + 0.5 * 0.25), -(0.25 * 0.1 - 1.0 * 0.2)]
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("max_dqda", "gradient"),
    [
        (1.0, [[-1.0, 0.5], [-0.25, 1.0]]),
        (0.3, [[-0.3, 0.3], [-0.25, 0.3]]),
        (4.0, [[-3.0, 0.5], [-0.25, 4.0]]),
    ],
)
def test_dpg_loss_descends_the_clipped_dqda_and_moves_nothing_but_the_actions(max_dqda, gradient):
    a_tm1, dqda_tm1 = tf.constant(PI_TM1), tf.constant(DQDA_TM1)
    with tf.GradientTape() as tape:
        tape.watch([a_tm1, dqda_tm1])
        loss = dpg_loss(a_tm1, dqda_tm1, max_dqda)
    a_gradient, dqda_gradient = tape.gradient(loss, [a_tm1, dqda_tm1])
    np.testing.assert_allclose(a_gradient, gradient, rtol=1e-6)
    assert dqda_gradient is None


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        # N * P is 1, 4 and 1/4: weights 1, 1/2 and 2 before they are divided by the largest.
        (0.5, [1.0 / 2.0, 0.5 / 2.0, 1.0]),
        (1.0, [1.0 / 4.0, 0.25 / 4.0, 1.0]),
        (0.0, [1.0, 1.0, 1.0]),
    ],
)
def test_importance_weights(exponent, expected):
    probability = tf.constant([0.1, 0.2, 0.0125], tf.float64)
    table_size = tf.constant([10, 20, 20], tf.int64)
    weights = importance_weights(probability, table_size, exponent)
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_importance_weights_of_tiny_probabilities_are_finite():
    probability = tf.constant([1e-300, 4e-300, 1.0], tf.float64)
    weights = importance_weights(probability, tf.constant([1, 1, 1], tf.int64), 1.0)
    np.testing.assert_allclose(weights, [1.0, 0.25, 0.0], rtol=1e-6)


# For each loss, arguments of the right shapes; B is 3.
ARGUMENTS = {
    double_q_values: {
        name: tensor
        for name, tensor in zip(
            ("q_tm1", "a_tm1", "r_t", "d_t", "q_t_value", "q_t_selector"),
            make_inputs(),
            strict=True,
        )
        if name not in ("r_t", "d_t")
    },
    munchausen_values: {
        "q_tm1": tf.zeros([3, 2]),
        "a_tm1": tf.zeros([3], tf.int32),
        "q_t": tf.zeros([3, 2, 4]),
    },
    td_loss: {name: tf.zeros([3]) for name in ("q_tm1", "r_t", "d_t", "v_t")},
    quantile_td_loss: {
        name: tf.zeros(shape)
        for name, shape in {"z_tm1": [3, 4], "r_t": [3], "d_t": [3], "z_t": [3, 4]}.items()
    },
    categorical_td_loss: {
        "logits_tm1": tf.zeros([3, 4]),
        "r_t": tf.zeros([3]),
        "d_t": tf.zeros([3]),
        "logits_t": tf.zeros([3, 4]),
        "atoms": tf.range(4.0),
    },
    dpg_loss: {"a_tm1": tf.zeros([3, 2]), "dqda_tm1": tf.zeros([3, 2]), "max_dqda": 1.0},
    importance_weights: {
        "probability": tf.fill([3], 0.5),
        "table_size": tf.fill([3], np.int64(2)),
        "exponent": 0.4,
    },
}
TENSORS = [
    (loss, name) for loss, given in ARGUMENTS.items() for name in given if tf.is_tensor(given[name])
]


@pytest.mark.parametrize(("loss", "name"), TENSORS)
def test_an_argument_of_another_shape_is_refused(loss, name):
    arguments = ARGUMENTS[loss]
    loss(**arguments)
    column = arguments[name][..., tf.newaxis]
    with pytest.raises(ValueError, match="shape"):
        loss(**{**arguments, name: column})


@pytest.mark.parametrize("shape", [[2], [None], [None, 3], [2, 3, 1], tf.TensorShape([2])])
def test_equal_shapes_pass(shape):
    tensor = tf.zeros([size or 7 for size in shape])
    check_shapes(shape, first=tensor, second=tensor)


@pytest.mark.parametrize(
    ("shape", "other"),
    [([2], [2, 1]), ([2, 1], [2]), ([2], []), ([2], [1]), ([None], [2, 1]), ([None, 3], [2, 1])],
)
def test_another_shape_is_refused_by_name(shape, other):
    good = tf.zeros([size or 2 for size in shape])
    with pytest.raises(ValueError, match="second"):
        check_shapes(shape, first=good, second=tf.zeros(other))


def test_sizes_that_a_graph_does_not_know_pass():
    def function(tensor: tf.Tensor) -> tf.Tensor:
        check_shapes([8], tensor=tensor)
        return tensor

    tf.function(function).get_concrete_function(tf.TensorSpec([None]))
    with pytest.raises(ValueError, match="tensor"):
        tf.function(function).get_concrete_function(tf.TensorSpec([None, 1]))


def test_nothing_is_added_to_a_graph():
    def list_operations(check: bool) -> list[str]:
        def function(tensor: tf.Tensor) -> tf.Tensor:
            if check:
                check_shapes([8, None], tensor=tensor)
            return tensor

        graph = tf.function(function).get_concrete_function(tf.TensorSpec([8, 3])).graph
        return [operation.type for operation in graph.get_operations()]

    assert list_operations(check=True) == list_operations(check=False)
