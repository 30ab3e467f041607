"""Losses as pure functions of batches (Horgan et al. 2018, section 3.1).

Names follow the usual notation of TD learning: `tm1` is the time S_t, A_t of a transition, `t` the
time S_{t+n} at which it ends.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

# Of Munchausen Q-learning: its policy's temperature, and scale and lower bound of its bonus.
MUNCHAUSEN_TAU, MUNCHAUSEN_ALPHA, MUNCHAUSEN_LOWEST = 0.03, 0.9, -1.0


class TDLoss(NamedTuple):
    """A loss per transition.

    Attributes:
      loss: `[B]`, to be descended.
      td_error: `[B]`, G_t - q(S_t, A_t), where q is the mean of a distribution if there is one.
    """

    loss: tf.Tensor
    td_error: tf.Tensor


def double_q_values(
    q_tm1: tf.Tensor, a_tm1: tf.Tensor, q_t_value: tf.Tensor, q_t_selector: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Select the two values whose difference double Q-learning makes smaller.

      q_tm1[a_tm1]  and  q_t_value[argmax_a q_t_selector[a]]

    Source: Horgan et al. 2018, section 3.1; van Hasselt et al. 2016.

    Args:
      q_tm1: `[B, A]` or `[B, A, N]`, online network at S_t: values or distributions.
      a_tm1: `[B]` int32, actions taken at S_t.
      q_t_value: target network at S_{t+n}, as `q_tm1`.
      q_t_selector: `[B, A]`, values of the online network at S_{t+n}.

    Returns:
      Estimates for the actions taken, and those to bootstrap from, both `[B]` or `[B, N]`;
      gradients flow into `q_tm1` and `q_t_value`.

    Raises:
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], q_t_selector=q_t_selector)
    check_shapes([*q_t_selector.shape, *q_tm1.shape[2:3]], q_tm1=q_tm1, q_t_value=q_t_value)
    check_shapes(q_t_selector.shape[:1], a_tm1=a_tm1)
    best = tf.argmax(q_t_selector, axis=-1)
    return _take(q_tm1, a_tm1), _take(q_t_value, best)


def munchausen_values(
    q_tm1: tf.Tensor, a_tm1: tf.Tensor, q_t: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the bonus of an action and the soft value of Munchausen Q-learning.

      pi = softmax(q / tau), tau = 0.03
      bonus = 0.9 * max(tau * log pi(a_tm1 | S_t), -1)
      value = sum_a pi(a | S_{t+n}) * (q_t[a] - tau * log pi(a | S_{t+n}))

    Source: Vieillard et al. 2020, for n = 1; here the first of n rewards has the bonus.

    Args:
      q_tm1: `[B, A]`, values of the target network at S_t.
      a_tm1: `[B]` int32, actions taken at S_t.
      q_t: `[B, A]` or `[B, A, N]`, target network at S_{t+n}: values or quantiles.

    Returns:
      Bonus, `[B]`, and value to bootstrap from, `[B]` or `[B, N]`.

    Raises:
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], q_tm1=q_tm1)
    check_shapes([*q_tm1.shape, *q_t.shape[2:3]], q_t=q_t)
    check_shapes(q_tm1.shape[:1], a_tm1=a_tm1)
    tau, means = MUNCHAUSEN_TAU, q_t
    log_taken = _take(tf.nn.log_softmax(q_tm1 / tau), a_tm1)
    bonus = MUNCHAUSEN_ALPHA * tf.maximum(tau * log_taken, MUNCHAUSEN_LOWEST)
    if q_t.shape.rank == 3:
        means = tf.reduce_mean(q_t, axis=2, keepdims=True)
    log_policy = tf.nn.log_softmax(means / tau, axis=1)
    return bonus, tf.reduce_sum(tf.exp(log_policy) * (q_t - tau * log_policy), axis=1)


def _take(q: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """Return the entries `[B, ...]` of `q`, `[B, A, ...]`, for one action in each row, `[B]`."""
    taken = tf.one_hot(action, q.shape[1])
    return tf.reduce_sum(q * (taken if q.shape.rank == 2 else taken[..., tf.newaxis]), axis=1)


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
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None], q_tm1=q_tm1)
    check_shapes(q_tm1.shape, r_t=r_t, d_t=d_t, v_t=v_t)
    td_error = tf.stop_gradient(r_t + d_t * v_t) - q_tm1
    return TDLoss(loss=0.5 * tf.square(td_error), td_error=td_error)


def quantile_td_loss(z_tm1: tf.Tensor, r_t: tf.Tensor, d_t: tf.Tensor, z_t: tf.Tensor) -> TDLoss:
    """Compute the Huber loss of quantile regression towards a bootstrapped return.

      G_j = r_t + d_t * z_t[j]
      tau_i = (i + 0.5) / N,  i = 0 .. N - 1
      loss = sum_i mean_j |tau_i - 1(G_j < z_tm1[i])| * huber(G_j - z_tm1[i])
      huber(u) = 0.5 * u^2 if |u| <= 1 else |u| - 0.5

    Source: Dabney et al. 2018, equations 9 and 10, algorithm 1 (kappa = 1).

    Args:
      z_tm1: `[B, N]`, quantiles for the actions taken; their mean is the action value.
      r_t: `[B]`, n-step return R.
      d_t: `[B]`, n-step discount D, 0 where the episode terminated.
      z_t: `[B, N]`, quantiles of the value of S_{t+n}.

    Returns:
      Loss, and the error of the means; gradients flow into `z_tm1` only.

    Raises:
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], z_tm1=z_tm1)
    check_shapes(z_tm1.shape, z_t=z_t)
    check_shapes(z_tm1.shape[:1], r_t=r_t, d_t=d_t)
    target = tf.stop_gradient(r_t[:, tf.newaxis] + d_t[:, tf.newaxis] * z_t)
    num_quantiles = z_tm1.shape[1]
    tau = (tf.range(num_quantiles, dtype=tf.float32) + 0.5) / num_quantiles

    @tf.custom_gradient  # TensorFlow's own passes [B, N, N] numbers more than twice as often.
    def loss_of(z_tm1: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        error = target[:, tf.newaxis, :] - z_tm1[:, :, tf.newaxis]  # [B, i, j]
        clipped = tf.clip_by_value(error, -1.0, 1.0)  # huber = clipped * (error - clipped / 2)
        slope = clipped * tf.abs(tau[:, tf.newaxis] - tf.cast(error < 0.0, tf.float32))
        loss = tf.reduce_sum(tf.reduce_mean(slope * (error - 0.5 * clipped), axis=2), axis=1)
        gradient = -tf.reduce_mean(slope, axis=2) + 0.0 * loss[:, tf.newaxis]  # NaN if infinite.
        return loss, lambda upstream: upstream[:, tf.newaxis] * gradient

    loss = loss_of(z_tm1)
    return TDLoss(loss, td_error=tf.reduce_mean(target, axis=1) - tf.reduce_mean(z_tm1, axis=1))


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
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None], probability=probability)
    check_shapes(probability.shape, table_size=table_size)
    scaled = tf.cast(probability, tf.float64) * tf.cast(table_size, tf.float64)
    weights = tf.pow(scaled, -exponent)
    return tf.stop_gradient(tf.cast(weights / tf.reduce_max(weights), tf.float32))


def check_shapes(shape: tf.TensorShape | Sequence[int | None], **tensors: tf.Tensor) -> None:
    """Check tensors of equal shape: `[B, 1]` where `[B]` is meant would broadcast to `[B, B]`.

    Args:
      shape: shape that all of them have to have; None matches any size.
      **tensors: tensors by name; sizes that are unknown while a graph is built are not checked.

    Raises:
      ValueError: a tensor has the wrong shape.
    """
    for name, tensor in tensors.items():
        if not tensor.shape.is_compatible_with(shape):
            raise ValueError(
                f"{name} has shape {tensor.shape}; it has to be {tf.TensorShape(shape)}."
            )
