"""The gradients of a worker, and the update of the learner (Mnih et al. 2016, algorithm S3)."""

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.networks import ActorCriticNetwork
from apex_agents.learning.optimizers import GuardedOptimizer
from apex_agents.learning.policy_losses import actor_critic_loss, bootstrapped_returns

# What a worker sends besides a gradient, in this order: the steps of its rollout, and means over
# them.
METRICS = ("num_steps", "loss", "policy_loss", "value_loss", "entropy", "value")


class Rollout(NamedTuple):
    """T consecutive lock-steps of E environments.

    Where S_{k+1} is the first state of an episode, S_k is the last one of the episode before, or
    that episode was abandoned since the environment failed. There is no such step: it is left out
    of the losses, and the returns of the steps before it end at S_k.

    Attributes:
      observation: `[T + 1, E, ...]`, S_k.
      action: `[T, E]` int32, A_k.
      reward: `[T, E]`, R_{k+1}.
      discount: `[T, E]`, gamma, 0 where the episode terminated at S_{k+1}.
      is_step: `[T, E]` bool, whether A_k led to S_{k+1}, which is no first state.
    """

    observation: tf.Tensor
    action: tf.Tensor
    reward: tf.Tensor
    discount: tf.Tensor
    is_step: tf.Tensor


def compute_gradient(
    network: ActorCriticNetwork, rollout: Rollout, config: ActorCriticConfig
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the gradient, to be descended, of the mean loss over a rollout's steps.

      loss = policy + value_coefficient * value - entropy_coefficient * entropy

    Args:
      network: from observations `[B, ...]` to logits `[B, A]` and values `[B]`.
      rollout: steps that were acted with this network.
      config: coefficients of the loss.

    Returns:
      The gradient of all trainable variables, flat and side by side, `[P]`, and the `METRICS`.
    """
    num_rows, num_envs, *shape = rollout.observation.shape
    rows = tf.reshape(rollout.observation, [num_rows * num_envs, *shape])
    # Before what is no step an episode ends, and all returns end with the rollout.
    is_last = tf.concat([~rollout.is_step[1:], tf.ones([1, num_envs], tf.bool)], axis=0)
    with tf.GradientTape() as tape:
        logits, value = network(rows)
        value = tf.reshape(value, [num_rows, num_envs])
        returns = bootstrapped_returns(rollout.reward, rollout.discount, value[1:], is_last)
        loss = actor_critic_loss(
            logits[:-num_envs],
            tf.reshape(value[:-1], [-1]),
            tf.reshape(rollout.action, [-1]),
            tf.reshape(returns, [-1]),
        )
        is_step = tf.cast(tf.reshape(rollout.is_step, [-1]), tf.float32)
        num_steps = tf.reduce_sum(is_step)

        def mean(values: tf.Tensor) -> tf.Tensor:
            return tf.math.divide_no_nan(tf.reduce_sum(values * is_step), num_steps)

        policy, value_loss, entropy = map(mean, loss)
        total = policy + config.value_coefficient * value_loss
        total -= config.entropy_coefficient * entropy
    gradients = tape.gradient(total, network.trainable_variables)
    gradient = tf.concat([tf.reshape(part, [-1]) for part in gradients], axis=0)
    mean_value = mean(tf.reshape(value[:-1], [-1]))
    metrics = [num_steps, total, policy, value_loss, entropy, mean_value]
    return gradient, tf.stack(metrics)


class ActorCriticUpdate:
    """Descends gradients of workers by RMSProp.

    Attributes:
      variables: `{'network': ...}`, variables of the network, for actors.
      state: network, optimiser and number of updates, for checkpoints.
      num_updates: int64 scalar, updates done so far.
      num_skipped: int64 scalar, updates left out since a gradient was not finite.
    """

    def __init__(self, network: ActorCriticNetwork, config: ActorCriticConfig):
        """Take a network whose variables exist."""
        self._trained = network.trainable_variables
        self._max_gradient_norm = config.max_gradient_norm
        optimizer = snt.optimizers.RMSProp(
            config.learning_rate, config.rmsprop_decay, epsilon=config.rmsprop_epsilon
        )
        self._optimizer = GuardedOptimizer((optimizer, self._trained))
        self.num_skipped = self._optimizer.num_skipped
        self.num_updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.variables = {"network": network.variables}
        self.state = {"network": network, "optimizer": optimizer, "num_updates": self.num_updates}

    def __call__(self, gradients: tf.Tensor, num_steps: tf.Tensor) -> tf.Tensor:
        """Apply the mean over the steps of K workers; return its norm before clipping.

        Args:
          gradients: `[K, P]`, one of each worker, a mean over its steps.
          num_steps: `[K]`, number of these steps.
        """
        weights = tf.math.divide_no_nan(num_steps, tf.reduce_sum(num_steps))
        mean = tf.linalg.matvec(gradients, weights, transpose_a=True)
        sizes = [variable.shape.num_elements() for variable in self._trained]
        parts = [
            tf.reshape(part, variable.shape)
            for part, variable in zip(tf.split(mean, sizes), self._trained, strict=True)
        ]
        parts, norm = tf.clip_by_global_norm(parts, self._max_gradient_norm)
        self._optimizer.apply([parts], [norm])
        self.num_updates.assign_add(1)
        return norm
