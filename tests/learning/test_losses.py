"""Tests of the losses against numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.learning.losses import double_q_loss, dpg_loss, importance_weights, td_loss

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


def test_double_q_loss_selects_with_one_network_and_evaluates_with_the_other():
    loss, td_error = double_q_loss(*make_inputs())
    np.testing.assert_allclose(td_error, TD_ERROR, rtol=1e-6)
    np.testing.assert_allclose(loss, LOSS, rtol=1e-6)


def test_td_error_is_target_minus_estimate():
    _, td_error = double_q_loss(*make_inputs())
    assert np.sign(td_error).tolist() == [1.0, -1.0, -1.0]


def test_gradients_reach_only_the_estimate_of_the_action_taken():
    inputs = make_inputs()
    q_tm1, _, *others = inputs
    with tf.GradientTape() as tape:
        tape.watch([q_tm1, *others])
        loss, _ = double_q_loss(*inputs)
    gradient, *other_gradients = tape.gradient(loss, [q_tm1, *others])
    expected = [[0.0, -16.5, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.5]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    assert other_gradients == [None] * 4


def test_td_loss():
    q_tm1, r_t = tf.constant([1.0, 3.0]), tf.constant([0.5, -1.0])
    d_t, v_t = tf.constant([0.9, 0.0]), tf.constant([10.0, 99.0])
    with tf.GradientTape() as tape:
        tape.watch([q_tm1, r_t, d_t, v_t])
        loss, td_error = td_loss(q_tm1, r_t, d_t, v_t)
    np.testing.assert_allclose(td_error, [0.5 + 0.9 * 10.0 - 1.0, -1.0 - 3.0], rtol=1e-6)
    np.testing.assert_allclose(loss, [0.5 * 8.5 * 8.5, 0.5 * 4.0 * 4.0], rtol=1e-6)
    gradient, *other_gradients = tape.gradient(loss, [q_tm1, r_t, d_t, v_t])
    np.testing.assert_allclose(gradient, [-8.5, 4.0], rtol=1e-6)
    assert other_gradients == [None] * 3


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


def test_no_gradient_flows_through_importance_weights():
    probability = tf.constant([0.5, 0.25], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(probability)
        weights = importance_weights(probability, tf.constant([4, 4], tf.int64), 0.4)
    assert tape.gradient(weights, probability) is None


# For each loss, arguments of the right shapes; B is 3.
ARGUMENTS = {
    double_q_loss: dict(
        zip(
            ("q_tm1", "a_tm1", "r_t", "d_t", "q_t_value", "q_t_selector"),
            make_inputs(),
            strict=True,
        )
    ),
    td_loss: {name: tf.zeros([3]) for name in ("q_tm1", "r_t", "d_t", "v_t")},
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


def make_column(tensor: tf.Tensor) -> tf.Tensor:
    return tensor[..., tf.newaxis]


def leave_out_a_row(tensor: tf.Tensor) -> tf.Tensor:
    return tensor[:2]


def keep_one_row(tensor: tf.Tensor) -> tf.Tensor:
    return tensor[:1]


@pytest.mark.parametrize("run", [lambda loss: loss, tf.function], ids=["eager", "tf.function"])
@pytest.mark.parametrize("change", [make_column, leave_out_a_row, keep_one_row])
@pytest.mark.parametrize(("loss", "name"), TENSORS)
def test_an_argument_of_another_shape_is_refused(loss, name, change, run):
    arguments = ARGUMENTS[loss]
    run(loss)(**arguments)
    with pytest.raises(ValueError, match="shape"):
        run(loss)(**{**arguments, name: change(arguments[name])})
