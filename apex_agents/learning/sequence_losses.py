"""Losses over sequences of time steps as pure functions (Kapturowski et al. 2019, section 2.3).

Sequences are `[B, T]`: step t has the observation S_t and the action A_t; r_t and d_t are the
reward and the discount that follow it. A step is *continued* if the sequence holds the step after
it and that one belongs to the same episode.
"""

from typing import NamedTuple

import tensorflow as tf

from apex_agents.learning.losses import check_shapes

_EPSILON = 1e-3  # The slope of h far from 0.


def rescale(x: tf.Tensor) -> tf.Tensor:
    """Compress values so that large returns need no clipping of rewards.

      h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x,  epsilon = 1e-3

    computed as x / (sqrt(|x| + 1) + 1) + epsilon x, which keeps the digits of small values.

    Source: Pohlen et al. 2018, proposition A.2; Kapturowski et al. 2019, section 2.3.

    Args:
      x: values of any shape.

    Returns:
      Values of the same shape; gradients flow into `x`.
    """
    return x / (tf.sqrt(tf.abs(x) + 1.0) + 1.0) + _EPSILON * x


def unrescale(x: tf.Tensor) -> tf.Tensor:
    """Invert `rescale`.

      h^-1(x) = sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)

    computed without its differences, in which float32 loses digits: with
    s = sqrt((1 + 2 epsilon)^2 + 4 epsilon |x|), the root that is squared is w + 1 for
    w = 2 |x| / (s + 1 + 2 epsilon), so that h^-1(x) = sign(x) w (w + 2).

    Source: Pohlen et al. 2018, proposition A.2.

    Args:
      x: values of any shape.

    Returns:
      Values of the same shape; gradients flow into `x`.
    """
    size = tf.abs(x)
    root = tf.sqrt((1.0 + 2.0 * _EPSILON) ** 2 + 4.0 * _EPSILON * size)
    w = 2.0 * size / (root + 1.0 + 2.0 * _EPSILON)
    return tf.sign(x) * w * (w + 2.0)


def n_step_targets(
    v_t: tf.Tensor, r_t: tf.Tensor, d_t: tf.Tensor, is_continued: tf.Tensor, n_step: int
) -> tf.Tensor:
    """Compute n-step returns at every step of a sequence.

      G_t(0) = v_t
      G_t(k) = r_t + d_t G_{t+1}(k - 1)  if step t is continued, else v_t

    G_t(n) bootstraps from the value n steps later or, where the episode or the sequence ends before
    that, from its last step: a truncated episode from its last observation, a terminated one, whose
    last d_t is 0, from nothing.

    Args:
      v_t: `[B, T]`, value of S_t.
      r_t: `[B, T]`, reward after step t.
      d_t: `[B, T]`, gamma times the environment's discount after step t.
      is_continued: `[B, T]` bool; False at the last step.
      n_step: n, agent steps.

    Returns:
      `[B, T]`; no gradient flows.

    Raises:
      ValueError: an argument has another shape.
    """
    check_shapes([None, None], v_t=v_t)
    check_shapes(v_t.shape, r_t=r_t, d_t=d_t, is_continued=is_continued)
    returns = v_t
    for _ in range(n_step):
        following = tf.concat([returns[:, 1:], v_t[:, -1:]], axis=1)
        # A product with 0 would keep a NaN of what follows a termination.
        bootstrapped = tf.where(d_t == 0.0, 0.0, d_t * following)
        returns = tf.where(is_continued, r_t + bootstrapped, v_t)
    return tf.stop_gradient(returns)


class SequenceLoss(NamedTuple):
    """A loss per sequence.

    Attributes:
      loss: `[B]`, to be descended.
      priority: `[B]`, of the sequence; no gradient flows.
    """

    loss: tf.Tensor
    priority: tf.Tensor


def sequence_td_loss(td_error: tf.Tensor, is_trained: tf.Tensor, max_share: float) -> SequenceLoss:
    """Compute the loss of a sequence and its priority from the TD errors of its steps.

      loss = sum_t 0.5 delta_t^2 / T_trained
      priority = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|

    over the trained steps. Padding and burn-in weigh nothing.

    Source: Kapturowski et al. 2019, section 2.3 (eta = 0.9).

    Args:
      td_error: `[B, T]`, delta_t; anything where a step is not trained.
      is_trained: `[B, T]` bool; at least one step of each sequence is.
      max_share: eta.

    Returns:
      Loss and priority; gradients of the loss flow into `td_error` of trained steps.

    Raises:
      ValueError: an argument has another shape.
    """
    check_shapes([None, None], td_error=td_error)
    check_shapes(td_error.shape, is_trained=is_trained)
    error = tf.where(is_trained, td_error, 0.0)
    num_trained = tf.reduce_sum(tf.cast(is_trained, tf.float32), axis=1)
    loss = 0.5 * tf.reduce_sum(tf.square(error), axis=1) / num_trained
    size = tf.stop_gradient(tf.abs(error))
    mean = tf.reduce_sum(size, axis=1) / num_trained
    return SequenceLoss(loss, max_share * tf.reduce_max(size, axis=1) + (1.0 - max_share) * mean)
