"""The update of Ape-X DPG (Horgan et al. 2018, section 3.2 and appendix D)."""

from typing import NamedTuple

import tensorflow as tf

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import DPGNetworks, make_distribution
from apex_agents.learning.losses import TDLoss, check_shapes
from apex_agents.learning.optimizers import Adam, GuardedOptimizer
from apex_agents.learning.policy_losses import dpg_loss
from apex_agents.learning.update import Computed, TargetCopies
from apex_agents.networks.normalization import update_statistics
from apex_agents.replay.transitions import Transition


class PolicyLoss(NamedTuple):
    """A loss per observation.

    Attributes:
      loss: `[B]`, to be descended.
      q_value: `[B]`, q(S_t, pi(S_t)).
      action_gradient: `[B, D]`, dq/da at pi(S_t), before it is clipped.
    """

    loss: tf.Tensor
    q_value: tf.Tensor
    action_gradient: tf.Tensor


class DPGUpdate:
    """TD learning of a critic, ascent of a policy on it, and periodically copied targets of both.

    Attributes, beside those of `learning.update.Update`:
      networks, target_networks: policy and critic.
      td_loss: loss of the critic towards a bootstrapped return; see `ReturnDistribution`.
      variables: `{'policy': ..., 'critic': ...}` of the online networks.
    """

    def __init__(self, online: DPGNetworks, target: DPGNetworks, config: ApexDPGConfig):
        """Take networks whose variables exist, and make the target equal to the online ones."""
        self.networks = online
        self.target_networks = target
        self._distribution = make_distribution(config)
        self.td_loss = self._distribution.td_loss
        self._max_action_gradient = config.max_action_gradient
        self._max_gradient_norm = config.max_gradient_norm
        self.trained = tuple(net.trainable_variables for net in online)
        policy_rate = config.policy_learning_rate or config.learning_rate
        policy_optimizer = Adam(lambda: policy_rate)
        critic_optimizer = Adam(lambda: config.learning_rate)
        optimizers = (policy_optimizer, critic_optimizer)
        self._optimizer = GuardedOptimizer(*zip(optimizers, self.trained, strict=True))
        self.targets = TargetCopies(
            [*online.policy.variables, *online.critic.variables],
            [*target.policy.variables, *target.critic.variables],
            config.target_update_period,
            config.target_update_rate,
        )
        self.num_updates = self.targets.num_updates
        self.variables = {name: net.variables for name, net in online._asdict().items()}
        self.state = {
            **online._asdict(),
            **{f"target_{name}": net for name, net in target._asdict().items()},
            "policy_optimizer": policy_optimizer,
            "critic_optimizer": critic_optimizer,
            "num_updates": self.num_updates,
        }

    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        """Compute gradients of both networks on one batch; see `learning.update.Update`."""
        update_statistics(self.networks.policy, batch.observation)
        update_statistics(self.networks.critic, batch.observation, batch.action)
        td_error, critic_gradients, critic_metrics = self._descend_td_error(batch, weights)
        policy_gradients, policy_metrics = self._ascend_q(batch)
        metrics = {**critic_metrics, **policy_metrics}
        return Computed((policy_gradients, critic_gradients), tf.abs(td_error), metrics)

    def apply(self, gradients: tuple[list[tf.Tensor], list[tf.Tensor]]) -> dict[str, tf.Tensor]:
        """Move both networks, the critic by clipped gradients; see `learning.update.Update`."""
        policy_gradients, critic_gradients = gradients
        policy_norm = tf.linalg.global_norm(policy_gradients)
        clipped, critic_norm = tf.clip_by_global_norm(critic_gradients, self._max_gradient_norm)
        self._optimizer.apply([policy_gradients, clipped], [policy_norm, critic_norm])
        self.targets.count_update()
        return {
            "gradient_norm": critic_norm,
            "policy_gradient_norm": policy_norm,
            "steps_skipped": self._optimizer.num_skipped.read_value(),
        }

    def compute_critic_loss(self, transitions: Transition) -> tuple[TDLoss, tf.Tensor]:
        """Compute the critic's loss; the method to override for another one.

          G = R + D * q_target(S_{t+n}, pi_target(S_{t+n}))
          loss = 0.5 * (G - q(S_t, A_t))^2, or that of a distribution, `td_loss`

        Returns:
          The loss of each transition before its weight, with the TD error whose absolute value is
          its priority; and the critic's output for the actions taken, `[B, ...]`. Gradients
          flow into the online critic.
        """
        policy, critic = self.target_networks
        next_action = policy(transitions.next_observation)
        check_shapes(next_action.shape, action=transitions.action)
        next_value = critic.return_distribution(transitions.next_observation, next_action)
        q_taken = self.networks.critic.return_distribution(
            transitions.observation, transitions.action
        )
        loss = self.td_loss(
            q_taken, transitions.n_step_return, transitions.n_step_discount, next_value
        )
        return loss, q_taken

    def compute_policy_loss(self, transitions: Transition) -> PolicyLoss:
        """Compute the policy's loss; the method to override for another one.

        No importance weights, as in D4PG (Barth-Maron et al. 2018): its mean is descended.
        """
        policy, critic = self.networks
        action = policy(transitions.observation)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(action)
            q_value = critic(transitions.observation, action)
        action_gradient = tape.gradient(q_value, action)
        loss = dpg_loss(action, action_gradient, self._max_action_gradient)
        return PolicyLoss(loss, q_value, action_gradient)

    def _descend_td_error(
        self, transitions: Transition, weights: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return TD errors `[B]`, the critic's gradients and metrics."""
        with tf.GradientTape() as tape:
            (loss, td_error), q_taken = self.compute_critic_loss(transitions)
            check_shapes(loss.shape, weights=weights)
            mean_loss = tf.reduce_mean(weights * loss)
        gradients = tape.gradient(mean_loss, self.networks.critic.trainable_variables)
        metrics = {
            "loss": mean_loss,
            "td_error": tf.reduce_mean(tf.abs(td_error)),
            "q_value": tf.reduce_mean(self._distribution.mean(q_taken)),
        }
        return td_error, gradients, metrics

    def _ascend_q(self, transitions: Transition) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the policy's gradients, to be descended, and metrics."""
        with tf.GradientTape() as tape:
            loss, q_value, action_gradient = self.compute_policy_loss(transitions)
            check_shapes(q_value.shape, loss=loss)
            mean_loss = tf.reduce_mean(loss)
        gradients = tape.gradient(mean_loss, self.networks.policy.trainable_variables)
        metrics = {
            "policy_q_value": tf.reduce_mean(q_value),
            "action_gradient": tf.reduce_mean(tf.abs(action_gradient)),
        }
        return gradients, metrics
