"""Tests of the losses and returns of actor-critics, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.learning.policy_losses import actor_critic_loss, bootstrapped_returns

# Three steps of three environments: one that is truncated behind its second step, one that
# terminates there, and one whose episode continues.
ROLLOUT = {
    "r_t": [[1.0, 2.0, 1.0], [3.0, 4.0, 1.0], [5.0, 6.0, 1.0]],
    "d_t": [[0.5, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.5]],
    "v_t": [[7.0, 8.0, 9.0], [10.0, 11.0, 12.0], [20.0, 30.0, 40.0]],
    "is_last_t": [[False, False, False], [True, True, False], [False, False, False]],
}
RETURNS = [
    [1.0 + 0.5 * 8.0, 2.0 + 0.5 * 4.0, 1.0 + 0.5 * 11.5],
    [3.0 + 0.5 * 10.0, 4.0, 1.0 + 0.5 * 21.0],
    [5.0 + 0.5 * 20.0, 6.0 + 0.5 * 30.0, 1.0 + 0.5 * 40.0],
]


def test_returns_end_with_the_episode_or_bootstrap():
    arguments = {name: tf.constant(rows) for name, rows in ROLLOUT.items()}
    with tf.GradientTape() as tape:
        tape.watch(arguments["v_t"])
        returns = bootstrapped_returns(**arguments)
    np.testing.assert_allclose(returns, RETURNS, rtol=1e-6)
    assert tape.gradient(returns, arguments["v_t"]) is None


# Policies over two actions with probabilities (3/4, 1/4) and (1/2, 1/2).
LOGITS = [[np.log(3.0), 0.0], [1.0, 1.0]]
VALUES, GOALS, TAKEN = [2.0, 1.0], [5.0, -1.0], [1, 0]


def test_actor_critic_loss_by_hand():
    logits, values = tf.constant(LOGITS, tf.float32), tf.constant(VALUES)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([logits, values])
        policy, value, entropy = actor_critic_loss(
            logits, values, tf.constant(TAKEN), tf.constant(GOALS)
        )
    np.testing.assert_allclose(policy, [-np.log(0.25) * 3.0, -np.log(0.5) * -2.0], rtol=1e-6)
    np.testing.assert_allclose(value, [9.0, 4.0], rtol=1e-6)
    entropies = [-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)), np.log(2.0)]
    np.testing.assert_allclose(entropy, entropies, rtol=1e-6)

    # d(-log pi(a)) / dlogits = pi - onehot(a), times the advantage.
    gradient = tape.gradient(policy, logits)
    np.testing.assert_allclose(gradient, [[3 * 0.75, -3 * 0.75], [-2 * -0.5, -2 * 0.5]], rtol=1e-6)
    assert tape.gradient(policy, values) is None
    # d(g - v)^2 / dv = -2 * (g - v).
    np.testing.assert_allclose(tape.gradient(value, values), [-6.0, 4.0], rtol=1e-6)
    assert tape.gradient(value, logits) is None
    # dH / dlogit_a = -pi(a) * (log pi(a) + H).
    slopes = [-p * (np.log(p) + entropies[0]) for p in (0.75, 0.25)]
    np.testing.assert_allclose(tape.gradient(entropy, logits), [slopes, [0, 0]], atol=1e-6)


def test_actor_critic_losses_refuse_other_shapes():
    rows = {name: tf.constant(rows) for name, rows in ROLLOUT.items()}
    with pytest.raises(ValueError, match="v_t"):
        bootstrapped_returns(**{**rows, "v_t": rows["v_t"][:2]})
    with pytest.raises(ValueError, match="v_tm1"):
        actor_critic_loss(
            tf.constant(LOGITS, tf.float32),
            tf.constant(VALUES)[:, tf.newaxis],
            tf.constant(TAKEN),
            tf.constant(GOALS),
        )
