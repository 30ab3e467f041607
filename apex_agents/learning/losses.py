"""Losses as pure functions of batches (Horgan et al. 2018, sections 3.1 and 3.2).

Names follow the usual notation of TD learning: `tm1` is the time S_t, A_t of a transition, `t` the
time S_{t+n} at which it ends.
"""

from typing import NamedTuple

import tensorflow as tf

from apex_agents.learning.shapes import check_shapes


class TDLoss(NamedTuple):
    """A loss per transition.

    Attributes:
      loss: `[B]`, 0.5 * td_error^2.
      td_error: `[B]`, G_t - q(S_t, A_t).
    """

    loss: tf.Tensor
    td_error: tf.Tensor


def double_q_loss(
    q_tm1: tf.Tensor,
    a_tm1: tf.Tensor,
    r_t: tf.Tensor,
    d_t: tf.Tensor,
    q_t_value: tf.Tensor,
    q_t_selector: tf.Tensor,
) -> TDLoss:
    """Compute the n-step double Q-learning loss.

      G_t = r_t + d_t * q_t_value[argmax_a q_t_selector[a]]
      loss = 0.5 * (G_t - q_tm1[a_tm1])^2

    Source: Horgan et al. 2018, section 3.1; van Hasselt et al. 2016.

    Args:
      q_tm1: `[B, A]`, online network at S_t.
      a_tm1: `[B]` int32, actions taken at S_t.
      r_t: `[B]`, n-step return R.
      d_t: `[B]`, n-step discount D, 0 where the episode terminated.
      q_t_value: `[B, A]`, target network at S_{t+n}.
      q_t_selector: `[B, A]`, online network at S_{t+n}.

    Returns:
      Loss and error; gradients flow into `q_tm1` only.

    Raises:
      ValueError: an argument has another shape.
    """
    check_shapes([None, None], q_tm1=q_tm1)
    check_shapes(q_tm1.shape, q_t_value=q_t_value, q_t_selector=q_t_selector)
    check_shapes(q_tm1.shape[:1], a_tm1=a_tm1, r_t=r_t, d_t=d_t)
    num_actions = q_tm1.shape[-1]
    selected = tf.one_hot(tf.argmax(q_t_selector, axis=-1), num_actions)
    bootstrap_value = tf.reduce_sum(q_t_value * selected, axis=-1)
    q_taken = tf.reduce_sum(q_tm1 * tf.one_hot(a_tm1, num_actions), axis=-1)
    return td_loss(q_taken, r_t, d_t, bootstrap_value)


def td_loss(q_tm1: tf.Tensor, r_t: tf.Tensor, d_t: tf.Tensor, v_t: tf.Tensor) -> TDLoss:
    """Compute the squared TD error towards a bootstrapped return.

      G_t = r_t + d_t * v_t
      loss = 0.5 * (G_t - q_tm1)^2

    Args:
      q_tm1: `[B]`, estimates for the actions taken.
      r_t: `[B]`, n-step return R.
      d_t: `[B]`, n-step discount D, 0 where the episode terminated.
      v_t: `[B]`, value of S_{t+n}.

    Returns:
      Loss and error; gradients flow into `q_tm1` only.

    Raises:
      ValueError: an argument has another shape.
    """
    check_shapes([None], q_tm1=q_tm1)
    check_shapes(q_tm1.shape, r_t=r_t, d_t=d_t, v_t=v_t)
    td_error = tf.stop_gradient(r_t + d_t * v_t) - q_tm1
    return TDLoss(loss=0.5 * tf.square(td_error), td_error=td_error)


def dpg_loss(a_tm1: tf.Tensor, dqda_tm1: tf.Tensor, max_dqda: float) -> tf.Tensor:
    """Compute a loss whose gradient descent ascends the deterministic policy gradient.

      loss = -sum_i clip(dqda_tm1[i], -max_dqda, max_dqda) * a_tm1[i]
      d loss / d phi = -clip(dq/da) * da/dphi  at a = pi(S_t; phi)

    Only the gradient of the loss has a meaning, not its value.

    Source: Silver et al. 2014, theorem 1; Lillicrap et al. 2016, algorithm 1; Horgan et al. 2018,
    section 3.2, and appendix D for clipping each element of dq/da.

    Args:
      a_tm1: `[B, D]`, pi(S_t), the actions of the online policy.
      dqda_tm1: `[B, D]`, gradients of the online critic's q(S_t, a) with respect to a at pi(S_t).
      max_dqda: limit of each element of dq/da.

    Returns:
      `[B]`; gradients flow into `a_tm1` only.

    Raises:
      ValueError: an argument has another shape.
    """
    check_shapes([None, None], a_tm1=a_tm1)
    check_shapes(a_tm1.shape, dqda_tm1=dqda_tm1)
    direction = tf.stop_gradient(tf.clip_by_value(dqda_tm1, -max_dqda, max_dqda))
    return -tf.reduce_sum(direction * a_tm1, axis=-1)


def importance_weights(probability: tf.Tensor, table_size: tf.Tensor, exponent: float) -> tf.Tensor:
    """Correct for sampling some transitions more often than others.

      w_k = (1 / (N * P(k)))^beta / max_j w_j

    Source: Schaul et al. 2016, section 3.4; Horgan et al. 2018, section 4.1.

    Args:
      probability: `[B]`, P(k) at the moment of sampling.
      table_size: `[B]` int64, N at the moment of sampling.
      exponent: beta.

    Returns:
      `[B]` float32, the largest is 1; no gradient flows.

    Raises:
      ValueError: an argument has another shape.
    """
    check_shapes([None], probability=probability)
    check_shapes(probability.shape, table_size=table_size)
    scaled = tf.cast(probability, tf.float64) * tf.cast(table_size, tf.float64)
    weights = tf.pow(scaled, -exponent)
    return tf.stop_gradient(tf.cast(weights / tf.reduce_max(weights), tf.float32))
