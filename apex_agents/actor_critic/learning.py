"""The update of A2C and A3C (Mnih et al. 2016, algorithm S3)."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.networks import ActorCriticNetwork
from apex_agents.learning.optimizers import GuardedOptimizer, RMSProp, anneal
from apex_agents.learning.policy_losses import actor_critic_loss, bootstrapped_returns
from apex_agents.learning.update import Computed

# Numbers that a worker sends besides a gradient: the steps of its rollout, and means over them.
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


class ActorCriticUpdate:
    """Gradients of rollouts, descended by RMSProp.

    Attributes, beside those of `learning.update.Update`:
      network: from observations `[B, ...]` to logits `[B, A]` and values `[B]`.
      variables: `{'network': ...}`.
    """

    def __init__(self, network: ActorCriticNetwork, config: ActorCriticConfig):
        """Take a network whose variables exist."""
        self.network = network
        self.trained = network.trainable_variables
        self._config = config
        decay, epsilon = config.rmsprop_decay, config.rmsprop_epsilon
        optimizer = RMSProp(self._learning_rate, decay, epsilon=epsilon)
        self._optimizer = GuardedOptimizer((optimizer, self.trained))
        self.num_updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.variables = {"network": network.variables}
        self.targets = None
        self.state = {"network": network, "optimizer": optimizer, "num_updates": self.num_updates}

    def compute(self, batch: Rollout, weights: tf.Tensor | None = None) -> Computed:
        """Compute the gradient of the mean loss over a rollout's steps, acted with this network.

          loss = policy + value_coefficient * value - entropy_coefficient * entropy

        Returns:
          Gradients, no priorities, and the `METRICS`.
        """
        del weights  # Rollouts are not sampled.
        num_rows, num_envs, *shape = batch.observation.shape
        rows = tf.reshape(batch.observation, [num_rows * num_envs, *shape])
        # A return stops before a row that is no step, where the episode ended, and at the end of
        # the rollout.
        is_last = tf.concat([~batch.is_step[1:], tf.ones([1, num_envs], tf.bool)], axis=0)
        with tf.GradientTape() as tape:
            logits, value = self.network(rows)
            value = tf.reshape(value, [num_rows, num_envs])
            returns = bootstrapped_returns(batch.reward, batch.discount, value[1:], is_last)
            loss = actor_critic_loss(
                logits[:-num_envs],
                tf.reshape(value[:-1], [-1]),
                tf.reshape(batch.action, [-1]),
                tf.reshape(returns, [-1]),
            )
            is_step = tf.cast(tf.reshape(batch.is_step, [-1]), tf.float32)
            num_steps = tf.reduce_sum(is_step)

            def mean(values: tf.Tensor) -> tf.Tensor:
                return tf.math.divide_no_nan(tf.reduce_sum(values * is_step), num_steps)

            policy, value_loss, entropy = map(mean, loss)
            total = policy + self._config.value_coefficient * value_loss
            total -= self._config.entropy_coefficient * entropy
        mean_value = mean(tf.reshape(value[:-1], [-1]))
        metrics = [num_steps, total, policy, value_loss, entropy, mean_value]
        gradients = tape.gradient(total, self.trained)
        return Computed(gradients, None, dict(zip(METRICS, metrics, strict=True)))

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> dict[str, tf.Tensor]:
        """Descend gradients, clipped by their global norm; see `learning.update.Update`."""
        gradients, norm = tf.clip_by_global_norm(gradients, self._config.max_gradient_norm)
        self._optimizer.apply([gradients], [norm])
        self.num_updates.assign_add(1)
        steps_skipped = self._optimizer.num_skipped.read_value()
        return {"gradient_norm": norm, "steps_skipped": steps_skipped}

    def _learning_rate(self) -> tf.Tensor | float:
        config = self._config
        return anneal(config.learning_rate, self.num_updates, config.learning_rate_steps)
