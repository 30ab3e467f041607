"""The update of R2D2 (Kapturowski et al. 2019, section 2.3)."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from apex_agents.acting.sequence_adder import ActedStep
from apex_agents.learning.optimizers import Adam
from apex_agents.learning.q_learning import QLearningUpdate
from apex_agents.learning.sequence_losses import (
    SequenceLoss,
    n_step_targets,
    rescale,
    sequence_td_loss,
    unrescale,
)
from apex_agents.legal_actions import is_legal, mean_of_legal
from apex_agents.networks.normalization import update_statistics
from apex_agents.r2d2.config import R2D2Config
from apex_agents.r2d2.networks import RecurrentNetwork, State
from apex_agents.replay.sequences import Sequences, SequenceSizes


def td_errors(
    q_taken: tf.Tensor,
    q_bootstrap: tf.Tensor,
    reward: tf.Tensor,
    discount: tf.Tensor,
    is_real: tf.Tensor,
    config: R2D2Config,
) -> tf.Tensor:
    """Compute the error of each trained step towards its n-step target; actor and learner use it.

      y_t = h(sum_{k<n} gamma^k r_{t+1+k} + gamma^n h^-1(q_bootstrap_{t+n}))
      delta_t = y_t - q_taken_t

    Source: Kapturowski et al. 2019, section 2.3.

    Args:
      q_taken: `[B, m]`, q(S_t, A_t) of the trained steps.
      q_bootstrap: `[B, m + n]`, value of S_t to bootstrap from, in the scale of the network.
      reward: `[B, m + n]`, which came with S_t.
      discount: `[B, m + n]`, of the environment, which came with S_t.
      is_real: `[B, m + n]` bool.
      config: n, gamma, and whether values are rescaled.

    Returns:
      `[B, m]`; anything where the step is padding. Gradients flow into `q_taken` only.
    """
    scale, unscale = (rescale, unrescale) if config.rescale_values else (tf.identity, tf.identity)
    is_continued = tf.concat([is_real[:, 1:], tf.zeros_like(is_real[:, :1])], axis=1)
    targets = n_step_targets(
        unscale(q_bootstrap),
        tf.roll(reward, -1, axis=1),
        config.discount * tf.roll(discount, -1, axis=1),
        is_continued,
        config.n_step,
    )
    return tf.stop_gradient(scale(targets))[:, : q_taken.shape[1]] - q_taken


def make_td_priority_fn(
    config: R2D2Config, sizes: SequenceSizes
) -> Callable[[Sequence[ActedStep], int], float]:
    """Make the function with which actors compute initial priorities, as the learner would."""

    @tf.function(autograph=False)
    def compute(steps: tf.Tensor, num_real: tf.Tensor, num_trained: tf.Tensor) -> tf.Tensor:
        q_taken, value, reward, discount = [steps[tf.newaxis, :, i] for i in range(4)]
        positions = tf.range(sizes.trained + sizes.following)[tf.newaxis]
        error = td_errors(
            q_taken[:, : sizes.trained], value, reward, discount, positions < num_real, config
        )
        is_trained = positions[:, : sizes.trained] < num_trained
        return sequence_td_loss(error, is_trained, config.priority_max_share).priority[0]

    def compute_priority(steps: Sequence[ActedStep], num_trained: int) -> float:
        numbers = np.zeros([sizes.trained + sizes.following, 4], np.float32)
        numbers[: len(steps)] = [step[:4] for step in steps]
        return float(compute(numbers, np.int32(len(steps)), np.int32(num_trained)))

    return compute_priority


class R2D2Update(QLearningUpdate):
    """Double Q-learning on sequences, whose recurrent states are computed anew by a burn-in.

    Attributes:
      network, target_network: recurrent action-value networks.
    """

    network: RecurrentNetwork
    target_network: RecurrentNetwork

    def __init__(
        self, network: RecurrentNetwork, target_network: RecurrentNetwork, config: R2D2Config
    ):
        """Take two networks whose variables exist, and make the target equal to the first."""
        optimizer = Adam(self.learning_rate, epsilon=config.adam_epsilon)
        super().__init__(network, target_network, config, optimizer)

    def compute_loss(self, batch: Sequences) -> tuple[SequenceLoss, tf.Tensor]:
        """Compute the loss; the method to override for another one.

        Returns:
          The loss of each sequence before its weight, with its priority; and the online network's
          values at the trained steps, `[B, m, A]`.
        """
        num_trained = batch.is_trained.shape[1]
        online_state, target_state = self._burn_in(batch)
        q_values, _ = self.network.unroll(batch.steps, online_state)
        target_values, _ = self.target_network.unroll(batch.steps, target_state)
        trained_values = q_values[:, :num_trained]
        error = td_errors(
            _take(trained_values, batch.action),
            _take(target_values, tf.argmax(q_values, axis=-1)),
            batch.steps.reward,
            batch.discount,
            batch.is_real,
            self._config,
        )
        loss = sequence_td_loss(error, batch.is_trained, self._config.priority_max_share)
        return loss, trained_values

    def _burn_in(self, batch: Sequences) -> tuple[State, State]:
        """Return the states of both networks before the first trained step; no gradient flows."""
        state = batch.state
        if not self._config.stored_state:
            state = self.network.initial_state(tf.shape(batch.num_burn_in)[0])
        if not self._config.burn_in_length:
            return state, state
        online, target = [
            tuple(map(tf.stop_gradient, network.unroll(batch.burn_in, state, batch.num_burn_in)[1]))
            for network in (self.network, self.target_network)
        ]
        return online, target

    def _update_statistics(self, batch: Sequences) -> None:
        observations = tf.boolean_mask(batch.steps.observation, batch.is_real)
        update_statistics(self.network.torso, observations)

    def _measure(self, batch: Sequences, q_values: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compare values given the states of acting with those given the learner's, if asked to.

          Delta Q = |q(h_learner) - q(h_acting)| / max_a |q(h_learner)|

        at the first and at the last trained step, the mean over the batch.

        Source: Kapturowski et al. 2019, section 3.
        """
        metrics = {"q_value": mean_of_legal(tf.boolean_mask(q_values, batch.is_trained))}
        last = tf.reduce_sum(tf.cast(batch.is_trained, tf.int32), axis=1) - 1
        indices = {"delta_q_first": tf.zeros_like(last), "delta_q_last": last}
        for (name, index), state in zip(indices.items(), batch.acted_states, strict=False):
            inputs = [tf.gather(tensor, index, batch_dims=1) for tensor in batch.steps]
            acted, _ = self.network(*inputs, *state)
            learned = tf.gather(q_values, index, batch_dims=1)
            size = tf.reduce_max(tf.where(is_legal(learned), tf.abs(learned), 0.0), axis=1)
            metrics[name] = tf.reduce_mean(tf.norm(learned - acted, axis=1) / size)
        return metrics


def _take(q: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """Return the values `[B, T]` of one action at each step."""
    return tf.reduce_sum(q * tf.one_hot(action, q.shape[-1]), axis=-1)
