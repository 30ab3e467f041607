"""The update of Ape-X DQN (Horgan et al. 2018, section 3.1 and appendix C)."""

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.networks import ActionValueNetwork, make_distribution
from apex_agents.learning.losses import TDLoss, double_q_values, munchausen_values
from apex_agents.learning.optimizers import AdaGrad, Adam, RMSProp
from apex_agents.learning.q_learning import QLearningUpdate
from apex_agents.replay.transitions import Transition


class DQNUpdate(QLearningUpdate):
    """Double or Munchausen Q-learning on n-step transitions with a target network copied at times.

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
        super().__init__(network, target_network, config, self._make_optimizer(config))
        self.td_loss = make_distribution(config).td_loss

    def compute_loss(self, transitions: Transition) -> tuple[TDLoss, tf.Tensor]:
        """Compute the loss; the method to override for another one.

        Returns:
          The loss of each transition before its weight, with the TD error whose absolute value is
          its priority; and the online network's values at S_t, `[B, A]` or `[B, A, N]`.
        """
        q_tm1 = self.network.return_distribution(transitions.observation)
        q_t = self.target_network.return_distribution(transitions.next_observation)
        n_step_return, n_step_discount = transitions.n_step_return, transitions.n_step_discount
        selector = self.network(transitions.next_observation)
        q_taken, bootstrap_value = double_q_values(q_tm1, transitions.action, q_t, selector)
        if self._config.target == "munchausen":
            q_tm1_value = self.target_network(transitions.observation)
            bonus, bootstrap_value = munchausen_values(q_tm1_value, transitions.action, q_t)
            n_step_return += bonus
        loss = self.td_loss(q_taken, n_step_return, n_step_discount, bootstrap_value)
        return loss, q_tm1

    def _make_optimizer(self, config: ApexDQNConfig) -> snt.Optimizer:
        if config.optimizer == "adagrad":
            return AdaGrad(config.learning_rate)
        if config.optimizer == "adam":
            epsilon = config.adam_epsilon or 0.01 / config.batch_size
            return Adam(self.learning_rate, epsilon=epsilon)
        rate, decay, epsilon = config.learning_rate, config.rmsprop_decay, config.rmsprop_epsilon
        return RMSProp(lambda: rate, decay, epsilon=epsilon, centered=True)
