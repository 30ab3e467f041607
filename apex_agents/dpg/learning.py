"""The update of Ape-X DPG (Horgan et al. 2018, section 3.2 and appendix D)."""

import tensorflow as tf

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import DPGNetworks, make_distribution
from apex_agents.learning.losses import dpg_loss
from apex_agents.learning.optimizers import Adam, GuardedOptimizer
from apex_agents.learning.shapes import check_shapes
from apex_agents.learning.update import TargetCopies, UpdateOutput
from apex_agents.networks.normalization import update_statistics
from apex_agents.replay.transitions import Transition


class DPGUpdate:
    """TD learning of a critic, ascent of a policy on it, and periodically copied targets of both.

    Attributes:
      variables: `{'policy': ..., 'critic': ...}`, the online networks' variables, for actors.
      state: networks, optimisers and number of updates, for checkpoints.
      num_updates: int64 scalar, updates done so far.
    """

    def __init__(self, online: DPGNetworks, target: DPGNetworks, config: ApexDPGConfig):
        """Take networks whose variables exist, and make the target equal to the online ones."""
        self._online = online
        self._target = target
        self._distribution = make_distribution(config)
        self._max_action_gradient = config.max_action_gradient
        self._max_gradient_norm = config.max_gradient_norm
        policy_optimizer = Adam(config.policy_learning_rate or config.learning_rate)
        critic_optimizer = Adam(config.learning_rate)
        self._optimizer = GuardedOptimizer(
            (policy_optimizer, online.policy.trainable_variables),
            (critic_optimizer, online.critic.trainable_variables),
        )
        self._target_copies = TargetCopies(
            [*online.policy.variables, *online.critic.variables],
            [*target.policy.variables, *target.critic.variables],
            config.target_update_period,
            config.target_update_rate,
        )
        self.num_updates = self._target_copies.num_updates
        self.variables = {name: net.variables for name, net in online._asdict().items()}
        self.state = {
            **online._asdict(),
            **{f"target_{name}": net for name, net in target._asdict().items()},
            "policy_optimizer": policy_optimizer,
            "critic_optimizer": critic_optimizer,
            "num_updates": self.num_updates,
        }

    def __call__(self, transitions: Transition, weights: tf.Tensor) -> UpdateOutput:
        """Move both networks by one batch; see `learning.update.Update`.

        Both gradients are taken at the parameters as they are before this update.
        """
        for network in self._online:
            update_statistics(network, transitions.observation)
        td_error, critic_gradients, critic_metrics = self._descend_td_error(transitions, weights)
        policy_gradients, policy_metrics = self._ascend_q(transitions.observation)
        self._optimizer.apply(
            [policy_gradients, critic_gradients],
            [policy_metrics["policy_gradient_norm"], critic_metrics["gradient_norm"]],
        )
        self._target_copies.count_update()

        steps_skipped = self._optimizer.num_skipped.read_value()
        metrics = {**critic_metrics, **policy_metrics, "steps_skipped": steps_skipped}
        return UpdateOutput(tf.abs(td_error), metrics)

    def _descend_td_error(
        self, transitions: Transition, weights: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return TD errors `[B]`, the critic's gradients and metrics.

        G = R + D * q_target(S_{t+n}, pi_target(S_{t+n}))
        loss = mean(w * 0.5 * (G - q(S_t, A_t))^2)
        """
        next_action = self._target.policy(transitions.next_observation)
        check_shapes(next_action.shape, action=transitions.action)
        next_value = self._target.critic.return_distribution(
            transitions.next_observation, next_action
        )
        with tf.GradientTape() as tape:
            q_taken = self._online.critic.return_distribution(
                transitions.observation, transitions.action
            )
            loss, td_error = self._distribution.td_loss(
                q_taken, transitions.n_step_return, transitions.n_step_discount, next_value
            )
            check_shapes(loss.shape, weights=weights)
            mean_loss = tf.reduce_mean(weights * loss)
        gradients = tape.gradient(mean_loss, self._online.critic.trainable_variables)
        gradients, gradient_norm = tf.clip_by_global_norm(gradients, self._max_gradient_norm)
        metrics = {
            "loss": mean_loss,
            "td_error": tf.reduce_mean(tf.abs(td_error)),
            "q_value": tf.reduce_mean(self._distribution.mean(q_taken)),
            "gradient_norm": gradient_norm,
        }
        return td_error, gradients, metrics

    def _ascend_q(self, observation: tf.Tensor) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the policy's gradients, to be descended, and metrics.

        loss = mean(dpg_loss), without importance weights, as in D4PG (Barth-Maron et al. 2018).
        """
        with tf.GradientTape() as policy_tape:
            action = self._online.policy(observation)
            with tf.GradientTape(watch_accessed_variables=False) as action_tape:
                action_tape.watch(action)
                q_value = self._online.critic(observation, action)
            action_gradient = action_tape.gradient(q_value, action)
            mean_loss = tf.reduce_mean(dpg_loss(action, action_gradient, self._max_action_gradient))
        gradients = policy_tape.gradient(mean_loss, self._online.policy.trainable_variables)
        metrics = {
            "policy_q_value": tf.reduce_mean(q_value),
            "action_gradient": tf.reduce_mean(tf.abs(action_gradient)),
            "policy_gradient_norm": tf.linalg.global_norm(gradients),
        }
        return gradients, metrics
