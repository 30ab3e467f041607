"""A loss of one's own: advantage learning (Bellemare et al. 2016), as a config file.

The targets of actions other than the best one are lowered; of a transition the first one counts.

apex-dqn --config=examples/own_loss.py
"""

import tensorflow as tf

import apex_agents as apex
from apex_agents.dqn.learning import DQNUpdate

ALPHA = 0.1  # 0 is the usual loss.


class AdvantageLearningUpdate(DQNUpdate):
    """Has G - alpha * (max_a q_target(S_t, a) - q_target(S_t, A_t)) in place of G."""

    def compute_loss(self, transitions):
        q = self.target_network(transitions.observation)
        gap = tf.reduce_max(q, axis=1) - tf.gather(q, transitions.action, batch_dims=1)
        n_step_return = transitions.n_step_return - ALPHA * gap
        return super().compute_loss(transitions._replace(n_step_return=n_step_return))


class AdvantageLearningBuilder(apex.ApexDQNBuilder):
    """Makes the parts of Ape-X DQN, but with this update."""

    def make_update(self, spec, seed=0):
        networks = [self.make_networks(spec, seed) for _ in range(2)]
        return AdvantageLearningUpdate(*networks, self.config)


def get_config():
    """Return the settings of CartPole with this builder."""
    config = apex.load_config("apex_dqn_cartpole")
    config.agent.builder = f"{__name__}:AdvantageLearningBuilder"
    config.agent.replay.initial_priority = "max"  # Actors do not know the other target.
    return config
