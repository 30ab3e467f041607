"""Losses of policies, in plain functions of tensors.

The notation is explained in `learning.losses`.
"""

from typing import NamedTuple

import tensorflow as tf

from apex_agents.learning.losses import check_shapes


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
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], a_tm1=a_tm1)
    check_shapes(a_tm1.shape, dqda_tm1=dqda_tm1)
    direction = tf.stop_gradient(tf.clip_by_value(dqda_tm1, -max_dqda, max_dqda))
    return -tf.reduce_sum(direction * a_tm1, axis=-1)


class ActorCriticLoss(NamedTuple):
    """The parts of an actor-critic loss, per step.

    Attributes:
      policy: `[B]`, whose descent ascends the policy gradient.
      value: `[B]`, (G_t - v(S_t))^2.
      entropy: `[B]`, of the policy at S_t, in nats.
    """

    policy: tf.Tensor
    value: tf.Tensor
    entropy: tf.Tensor


def bootstrapped_returns(
    r_t: tf.Tensor, d_t: tf.Tensor, v_t: tf.Tensor, is_last_t: tf.Tensor
) -> tf.Tensor:
    """Compute the returns of consecutive steps, as far as the rollout or the episode goes.

      G_k = r_k + d_k * v_k      if k is the rollout's last step, or S_{k+1} is its episode's last
      G_k = r_k + d_k * G_{k+1}  otherwise

    Source: Mnih et al. 2016, algorithm S3. An episode that was truncated bootstraps from the value
    of its last state; one that terminated has d_k = 0.

    Args:
      r_t: `[T, E]`, rewards R_{k+1} of E environments.
      d_t: `[T, E]`, discounts gamma_{k+1}, 0 where the episode terminated.
      v_t: `[T, E]`, values of S_{k+1}.
      is_last_t: `[T, E]` bool, whether S_{k+1} is the last state of its episode, or the last one
        before the episode was abandoned.

    Returns:
      `[T, E]`, through which no gradients flow.

    Raises:
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], r_t=r_t)
    check_shapes(r_t.shape, d_t=d_t, v_t=v_t, is_last_t=is_last_t)
    following, returns = v_t[-1], []
    rows = [tf.unstack(column)[::-1] for column in (r_t, d_t, v_t, is_last_t)]
    for r, d, v, is_last in zip(*rows, strict=True):
        following = r + d * tf.where(is_last, v, following)
        returns.append(following)
    return tf.stop_gradient(tf.stack(returns[::-1]))


def actor_critic_loss(
    logits_tm1: tf.Tensor, v_tm1: tf.Tensor, a_tm1: tf.Tensor, g_tm1: tf.Tensor
) -> ActorCriticLoss:
    """Compute the losses of a policy and of its values.

      policy = -log pi(a_tm1) * (g_tm1 - v_tm1), where no gradients flow through the advantage
      value = (g_tm1 - v_tm1)^2
      entropy = -sum_a pi(a) * log pi(a)

    Source: Mnih et al. 2016, section 4.

    Args:
      logits_tm1: `[B, A]`, logits of the policy at S_t.
      v_tm1: `[B]`, values of S_t.
      a_tm1: `[B]` int32, actions taken at S_t.
      g_tm1: `[B]`, returns from S_t on, of `bootstrapped_returns`.

    Raises:
      ValueError: an argument has the wrong shape.
    """
    check_shapes([None, None], logits_tm1=logits_tm1)
    check_shapes(logits_tm1.shape[:1], v_tm1=v_tm1, a_tm1=a_tm1, g_tm1=g_tm1)
    log_policy = tf.nn.log_softmax(logits_tm1)
    log_taken = tf.reduce_sum(log_policy * tf.one_hot(a_tm1, logits_tm1.shape[1]), axis=1)
    advantage = tf.stop_gradient(g_tm1) - v_tm1
    policy = -log_taken * tf.stop_gradient(advantage)
    entropy = -tf.reduce_sum(tf.exp(log_policy) * log_policy, axis=-1)
    return ActorCriticLoss(policy, tf.square(advantage), entropy)
