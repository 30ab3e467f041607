"""A priority of one's own, as a config file: apex-dqn --config=examples/own_priority.py."""

import dataclasses

import tensorflow as tf

import apex_agents as apex
from apex_agents.dqn.learning import DQNUpdate


@dataclasses.dataclass
class RarityConfig(apex.ApexDQNConfig):
    rarity_power: float = 1.0


class RarityUpdate(DQNUpdate):
    """Multiplies the priority of a transition by how far its observation is from the mean."""

    def compute(self, transitions, weights):
        computed = super().compute(transitions, weights)
        mean, variance = tf.nn.moments(transitions.observation, axes=[0])
        distances = tf.norm((transitions.observation - mean) / tf.sqrt(variance + 1e-6), axis=1)
        rarity = tf.math.divide_no_nan(distances, tf.reduce_max(distances))  # At most 1.
        return computed._replace(priorities=computed.priorities * rarity**self.power)


class RarityBuilder(apex.ApexDQNBuilder):
    def make_update(self, spec, seed=0):
        update = RarityUpdate(*[self.make_networks(spec, seed) for _ in range(2)], self.config)
        update.power = self.config.rarity_power
        return update


def get_config():
    config = apex.load_config("apex_dqn_cartpole")
    config.agent = RarityConfig(**vars(config.agent))
    config.agent.builder = f"{__name__}:RarityBuilder"
    config.agent.replay.initial_priority = "max"  # Actors do not know how rare it is.
    return config
