"""Tests of the losses over sequences, against numbers by hand and of another implementation."""

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.learning.sequence_losses import (
    n_step_targets,
    rescale,
    sequence_td_loss,
    unrescale,
)

NAN = np.nan


def constants(*rows):
    return [tf.constant(row, tf.float32) for row in rows]


def test_rescaled_values():
    x = [0.0, 3.0, -8.0, 99.0]
    expected = [0.0, (2 - 1) + 0.003, -(3 - 1) - 0.008, (10 - 1) + 0.099]
    np.testing.assert_allclose(rescale(tf.constant(x)), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0, 37.0, 1e3, 1e5])
def test_digits_survive_the_round_trip(size):
    x = tf.constant([size, -size])
    np.testing.assert_allclose(unrescale(rescale(x)), x, rtol=1e-6)
    np.testing.assert_allclose(rescale(unrescale(x)), x, rtol=1e-6)


def test_targets_of_an_episode_that_goes_on():
    v_t, r_t, d_t = constants([[10.0, 20.0, 30.0, 40.0]], [[1.0, 2.0, 4.0, 0.0]], [[0.5] * 4])
    is_continued = tf.constant([[True, True, True, False]])
    # The last step of the sequence has its value; those before it bootstrap from it early.
    expected = {
        1: [1 + 0.5 * 20, 2 + 0.5 * 30, 4 + 0.5 * 40, 40],
        2: [1 + 0.5 * 2 + 0.25 * 30, 2 + 0.5 * 4 + 0.25 * 40, 4 + 0.5 * 40, 40],
        5: [1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 40, 2 + 0.5 * 4 + 0.25 * 40, 4 + 0.5 * 40, 40],
    }
    for n_step, row in expected.items():
        targets = n_step_targets(v_t, r_t, d_t, is_continued, n_step)
        np.testing.assert_allclose(targets, [row], rtol=1e-6)


def test_targets_at_the_ends_of_episodes():
    # Terminated after two steps; truncated after two; what follows is padding, or anything.
    v_t, r_t, d_t = constants(
        [[10.0, 20.0, NAN, NAN], [10.0, 20.0, 30.0, NAN]],
        [[1.0, 2.0, NAN, NAN], [1.0, 2.0, NAN, NAN]],
        [[0.5, 0.0, NAN, NAN], [0.5, 0.5, NAN, NAN]],
    )
    is_continued = tf.constant([[True, True, False, False]] * 2)
    targets = n_step_targets(v_t, r_t, d_t, is_continued, 3)
    np.testing.assert_allclose(targets[0, :2], [1 + 0.5 * 2, 2], rtol=1e-6)
    expected = [1 + 0.5 * 2 + 0.25 * 30, 2 + 0.5 * 30, 30]
    np.testing.assert_allclose(targets[1, :3], expected, rtol=1e-6)


# Of rlax 0.1.7, `transformed_n_step_q_learning` with its signed hyperbolic pair, in float64.
Q = [[1.0, 2.0], [0.5, -1.0], [3.0, 1.5], [-2.0, 0.0], [4.0, 2.5], [0.25, 8.0]]
Q_TARGET = [[0.0, 1.0], [2.0, -3.0], [1.0, 5.0], [-1.0, 6.0], [7.0, 0.5], [12.0, -4.0]]
ACTIONS, REWARDS = [0, 1, 1, 0, 1], [1.0, -2.0, 0.5, 30.0, 4.0, NAN]
DISCOUNTS = [0.9, 0.9, 0.45, 0.9, 0.9, NAN]
RLAX = {
    1: [1.03423, 1.300401, 2.297027, 10.403025, -5.805351],
    2: [-0.379638, 4.333001, 3.872733, 4.932518, -5.805351],
    3: [2.242998, 5.881558, 0.328024, 4.932518, -5.805351],
    5: [0.420682, 2.298292, 0.328024, 4.932518, -5.805351],
}


@pytest.mark.parametrize("n_step", RLAX)
def test_errors_equal_those_of_rlax(n_step):
    values = np.take_along_axis(np.float32(Q_TARGET), np.argmax(Q, axis=1)[:, None], axis=1).T
    r_t, d_t = constants([REWARDS], [DISCOUNTS])
    is_continued = tf.constant([[True] * 5 + [False]])
    targets = n_step_targets(unrescale(tf.constant(values)), r_t, d_t, is_continued, n_step)
    errors = rescale(targets)[0, :5] - np.float32(Q)[np.arange(5), ACTIONS]
    np.testing.assert_allclose(errors, RLAX[n_step], atol=2e-5)


def test_loss_and_priority_are_those_of_the_trained_steps():
    (td_error,) = constants([[NAN, 100.0, 1.0, -3.0, 2.0], [7.0, -2.0, NAN, NAN, NAN]])
    is_trained = tf.constant([[False, False, True, True, True], [False, True, False, False, False]])
    with tf.GradientTape() as tape:
        tape.watch(td_error)
        loss, priority = sequence_td_loss(td_error, is_trained, 0.9)
    np.testing.assert_allclose(loss, [0.5 * (1 + 9 + 4) / 3, 0.5 * 4], rtol=1e-6)
    np.testing.assert_allclose(priority, [0.9 * 3 + 0.1 * 6 / 3, 2], rtol=1e-6)
    expected = [[0, 0, 1 / 3, -3 / 3, 2 / 3], [0, -2, 0, 0, 0]]
    np.testing.assert_allclose(tape.gradient(loss, td_error), expected, rtol=1e-6)


def test_no_gradient_reaches_the_targets():
    arguments = constants([[10.0, 20.0]], [[1.0, 0.0]], [[0.5, 0.5]])
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        targets = n_step_targets(*arguments, tf.constant([[True, False]]), 1)
    assert tape.gradient(targets, arguments) == [None] * 3
