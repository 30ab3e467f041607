"""The update of Ape-X DQN (Horgan et al. 2018, section 3.1 and appendix C)."""

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.networks import ActionValueNetwork, make_distribution
from apex_agents.learning.losses import TDLoss, check_shapes, double_q_values
from apex_agents.learning.optimizers import Adam, CenteredRMSProp, GuardedOptimizer
from apex_agents.learning.update import Computed, TargetCopies
from apex_agents.networks.normalization import update_statistics
from apex_agents.precision import compute_dtype, computing_in
from apex_agents.learning.losses import TDLoss, double_q_values
from apex_agents.learning.optimizers import Adam, CenteredRMSProp
from apex_agents.learning.q_learning import QLearningUpdate
from apex_agents.replay.transitions import Transition


class DQNUpdate(QLearningUpdate):
    """Double Q-learning on n-step transitions with a periodically copied target network.

    Attributes:
      network, target_network: maps from observations `[B, ...]` to action values `[B, A]`.
      td_loss: loss towards a bootstrapped return; see `ReturnDistribution`.
    """

    network: ActionValueNetwork
    target_network: ActionValueNetwork

    def __init__(
        self,
        network: ActionValueNetwork,
        target_network: ActionValueNetwork,
        config: ApexDQNConfig,
    ):
        """Take two networks whose variables exist, and make the target equal to the first."""
        super().__init__(network, target_network, config, _make_optimizer(config))
        self.td_loss = make_distribution(config).td_loss
        optimizer = _make_optimizer(config)
        self.trained = network.trainable_variables
        self._optimizer = GuardedOptimizer((optimizer, self.trained))
        self._target_copies = TargetCopies(
            network.variables, target_network.variables, config.target_update_period
        )
        self.num_updates = self._target_copies.num_updates
        self.variables = {"network": network.variables}
        if config.exploration.annealing_steps is not None:
            self.variables["num_updates"] = [self.num_updates]
        self.state = {
            "network": network,
            "target_network": target_network,
            "optimizer": optimizer,
            "num_updates": self.num_updates,
        }

    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        """Compute gradients of the weighted loss; see `learning.update.Update`."""
        update_statistics(self.network, batch.observation)
        with tf.GradientTape() as tape, computing_in(self._compute_dtype):
            (loss, td_error), q_tm1 = self.compute_loss(batch)
            check_shapes(loss.shape, weights=weights)
            mean_loss = tf.reduce_mean(weights * loss)
        priorities = tf.abs(td_error)
        metrics = {
            "loss": mean_loss,
            "td_error": tf.reduce_mean(priorities),
            "q_value": tf.reduce_mean(q_tm1),
        }
        return Computed(tape.gradient(mean_loss, self.trained), priorities, metrics)

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> dict[str, tf.Tensor]:
        """Descend gradients, clipped by their global norm; see `learning.update.Update`."""
        gradients, norm = tf.clip_by_global_norm(gradients, self._max_gradient_norm)
        self._optimizer.apply([gradients], [norm])
        self._target_copies.count_update()
        steps_skipped = self._optimizer.num_skipped.read_value()
        return {"gradient_norm": norm, "steps_skipped": steps_skipped}

    def compute_loss(self, transitions: Transition) -> tuple[TDLoss, tf.Tensor]:
        """Compute the loss; the method to override for another one.

        Returns:
          The loss of each transition before its weight, with the TD error whose absolute value is
          its priority; and the online network's values at S_t, `[B, A]` or `[B, A, N]`.
        """
        q_tm1 = self.network.return_distribution(transitions.observation)
        q_taken, bootstrap_value = double_q_values(
            q_tm1,
            transitions.action,
            q_t_value=self.target_network.return_distribution(transitions.next_observation),
            q_t_selector=self.network(transitions.next_observation),
        )
        loss = self.td_loss(
            q_taken, transitions.n_step_return, transitions.n_step_discount, bootstrap_value
        )
        return loss, q_tm1


def _make_optimizer(config: ApexDQNConfig) -> snt.Optimizer:
    if config.optimizer == "adam":
        epsilon = config.adam_epsilon or 0.01 / config.batch_size
        return Adam(config.learning_rate, epsilon, config.learning_rate_steps)
    return CenteredRMSProp(config.learning_rate, config.rmsprop_decay, config.rmsprop_epsilon)
