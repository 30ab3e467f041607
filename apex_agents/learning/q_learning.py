"""Base of the updates of action values: an online network, and a target copied from it."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.learning.losses import check_shapes
from apex_agents.learning.optimizers import GuardedOptimizer, anneal
from apex_agents.learning.update import Computed, TargetCopies
from apex_agents.legal_actions import mean_of_legal
from apex_agents.networks.normalization import update_statistics
from apex_agents.precision import compute_dtype, computing_in


class QLearningUpdate(abc.ABC):
    """Descends a loss of action values, weighted by importance, with a target network.

    Attributes, beside those of `learning.update.Update`:
      network, target_network: modules that compute action values.
      variables: `{'network': ...}` of the online network, and `'num_updates'` where the epsilons of
        actors depend on it.
    """

    def __init__(
        self,
        network: snt.Module,
        target_network: snt.Module,
        config: Any,
        optimizer: snt.Optimizer,
    ):
        """Take two networks whose variables exist, and make the target equal to the first.

        Args:
          network: online network.
          target_network: network of the same kind.
          config: settings of the agent.
          optimizer: takes the steps.
        """
        self.network = network
        self.target_network = target_network
        self.trained = network.trainable_variables
        self._config = config
        self._compute_dtype = compute_dtype(config.bfloat16)
        self._optimizer = GuardedOptimizer((optimizer, self.trained))
        self.targets = TargetCopies(
            network.variables, target_network.variables, config.target_update_period
        )
        self.num_updates = self.targets.num_updates
        self.variables = {"network": network.variables}
        if config.exploration.annealing_steps is not None:
            self.variables["num_updates"] = [self.num_updates]
        self.state = {
            "network": network,
            "target_network": target_network,
            "optimizer": optimizer,
            "num_updates": self.num_updates,
        }

    def learning_rate(self) -> tf.Tensor | float:
        """Return the learning rate of the next update."""
        config = self._config
        return anneal(config.learning_rate, self.num_updates, config.learning_rate_steps)

    @abc.abstractmethod
    def compute_loss(self, batch: Any) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Compute the loss; the method to override for another one.

        Returns:
          The loss of each item before its weight, `[B]`, and what its priority is the absolute
          value of, `[B]`; and the online network's action values.
        """

    def compute(self, batch: Any, weights: tf.Tensor) -> Computed:
        """Compute gradients of the weighted loss; see `learning.update.Update`."""
        self._update_statistics(batch)
        with tf.GradientTape() as tape, computing_in(self._compute_dtype):
            (loss, td_error), q_values = self.compute_loss(batch)
            check_shapes(loss.shape, weights=weights)
            mean_loss = tf.reduce_mean(weights * loss)
        priorities = tf.abs(td_error)
        with computing_in(self._compute_dtype):
            measured = self._measure(batch, q_values)
        metrics = {"loss": mean_loss, "td_error": tf.reduce_mean(priorities), **measured}
        return Computed(tape.gradient(mean_loss, self.trained), priorities, metrics)

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> dict[str, tf.Tensor]:
        """Descend gradients, clipped by their global norm; see `learning.update.Update`."""
        gradients, norm = tf.clip_by_global_norm(gradients, self._config.max_gradient_norm)
        self._optimizer.apply([gradients], [norm])
        self.targets.count_update()
        steps_skipped = self._optimizer.num_skipped.read_value()
        return {"gradient_norm": norm, "steps_skipped": steps_skipped}

    def _update_statistics(self, batch: Any) -> None:
        """Add the observations of a batch to the statistics that normalize them."""
        update_statistics(self.network, batch.observation)

    def _measure(self, batch: Any, q_values: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Return metrics of the online network's action values, by name."""
        del batch
        return {"q_value": mean_of_legal(q_values)}
