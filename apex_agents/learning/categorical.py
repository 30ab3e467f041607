"""Categorical distributions of the return (Bellemare et al. 2017)."""

import tensorflow as tf

from apex_agents.learning.distributions import ReturnDistribution
from apex_agents.learning.losses import TDLoss, check_shapes


def categorical(num_atoms: int, min_return: float, max_return: float) -> ReturnDistribution:
    """Make probabilities of returns from `min_return` to `max_return` (Bellemare et al. 2017)."""

    def atoms() -> tf.Tensor:  # Made anew in every graph.
        return tf.linspace(float(min_return), float(max_return), num_atoms)

    def mean(logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.nn.softmax(logits) * atoms(), axis=-1)

    def loss(logits_tm1: tf.Tensor, r_t: tf.Tensor, d_t: tf.Tensor, logits_t: tf.Tensor) -> TDLoss:
        return categorical_td_loss(logits_tm1, r_t, d_t, logits_t, atoms())

    return ReturnDistribution((num_atoms,), mean, loss)


def categorical_td_loss(
    logits_tm1: tf.Tensor, r_t: tf.Tensor, d_t: tf.Tensor, logits_t: tf.Tensor, atoms: tf.Tensor
) -> TDLoss:
    """Compute the cross-entropy towards a bootstrapped return that is projected onto the atoms.

      p_t = softmax(logits_t),  G_j = r_t + d_t * atoms[j], clipped to the range of the atoms
      target[i] = sum_j p_t[j] * max(0, 1 - |G_j - atoms[i]| / spacing)
      loss = -sum_i target[i] * log softmax(logits_tm1)[i]

    Source: Bellemare et al. 2017, equation 7 and algorithm 1.

    Args:
      logits_tm1: `[B, N]`, logits of the return's distribution for the actions taken.
      r_t: `[B]`, n-step return R.
      d_t: `[B]`, n-step discount D, 0 where the episode terminated.
      logits_t: `[B, N]`, logits of the distribution at S_{t+n}.
      atoms: `[N]`, returns in equal steps, increasing.

    Returns:
      Loss, and the error of the means before the projection; gradients flow into `logits_tm1` only.

    Raises:
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], logits_tm1=logits_tm1)
    check_shapes(logits_tm1.shape, logits_t=logits_t)
    check_shapes(logits_tm1.shape[:1], r_t=r_t, d_t=d_t)
    check_shapes(logits_tm1.shape[1:], atoms=atoms)
    probabilities_t = tf.stop_gradient(tf.nn.softmax(logits_t))
    returns = r_t[:, tf.newaxis] + d_t[:, tf.newaxis] * atoms
    clipped = tf.clip_by_value(returns, atoms[0], atoms[-1])
    distance = tf.abs(clipped[:, tf.newaxis, :] - atoms[:, tf.newaxis])  # [B, i, j]
    share = tf.maximum(0.0, 1.0 - distance / (atoms[1] - atoms[0]))
    target = tf.stop_gradient(tf.linalg.matvec(share, probabilities_t))
    loss = tf.nn.softmax_cross_entropy_with_logits(target, logits_tm1)
    mean_t = tf.reduce_sum(probabilities_t * returns, axis=1)
    mean_tm1 = tf.reduce_sum(tf.nn.softmax(logits_tm1) * atoms, axis=1)
    return TDLoss(loss, td_error=tf.stop_gradient(mean_t) - mean_tm1)
