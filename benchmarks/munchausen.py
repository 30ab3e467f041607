"""MinAtar by Ape-X DQN with Munchausen's target (Vieillard et al. 2020), as a config file.

It adds the scaled log-probability of the action taken to its reward, and bootstraps from soft
values, of the policy that is a softmax of the target network's values:

  G = R + alpha * clip(tau * ln pi(A_t | S_t), l0, 0) + D * sum_a pi(a) * (q(a) - tau * ln pi(a))

The first term is that of the first of a transition's n steps. Quantiles are averaged over actions
one by one.

Example:
  apex-dqn --config=benchmarks/munchausen.py
  PYTHONPATH=benchmarks apex-dqn --config=apex_dqn_atari_single_host \
      --config.agent.builder=munchausen:MunchausenBuilder \
      --config.agent.replay.initial_priority=max
"""

import tensorflow as tf

import apex_agents as apex
from apex_agents.config import ExperimentConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.losses import TDLoss
from apex_agents.replay.transitions import Transition

# Vieillard et al. 2020, section 4; l0 is the lowest value of the added term.
ALPHA, TAU, LOWEST = 0.9, 0.03, -1.0


class MunchausenUpdate(DQNUpdate):
    """Descends the head's loss towards Munchausen's target."""

    def compute_loss(self, transitions: Transition) -> tuple[TDLoss, tf.Tensor]:
        q_tm1 = self.network.return_distribution(transitions.observation)
        before = tf.nn.log_softmax(self.target_network(transitions.observation) / TAU)
        log_policy = tf.nn.log_softmax(self.target_network(transitions.next_observation) / TAU)
        policy = tf.exp(log_policy)
        q_t = self.target_network.return_distribution(transitions.next_observation)
        value = tf.einsum("ba,ba...->b...", policy, q_t)
        soft = -TAU * tf.reduce_sum(policy * log_policy, axis=1)
        taken = tf.gather(before, transitions.action, batch_dims=1)
        bonus = ALPHA * tf.clip_by_value(TAU * taken, LOWEST, 0.0)
        discount = transitions.n_step_discount
        n_step_return = transitions.n_step_return + bonus + discount * soft
        q_taken = tf.gather(q_tm1, transitions.action, batch_dims=1)
        return self.td_loss(q_taken, n_step_return, discount, value), q_tm1


class MunchausenBuilder(apex.ApexDQNBuilder):
    """Makes the parts of Ape-X DQN, but with this update."""

    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> MunchausenUpdate:
        network, target_network = (self.make_networks(spec, seed) for _ in range(2))
        return MunchausenUpdate(network, target_network, self.config)


def get_config() -> ExperimentConfig:
    """Return the settings of MinAtar with this builder."""
    config = apex.load_config("apex_dqn_minatar")
    config.agent.builder = f"{__name__}:MunchausenBuilder"
    config.agent.replay.initial_priority = "max"  # Actors do not know the other target.
    return config
