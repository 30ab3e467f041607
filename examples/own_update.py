"""An update of one's own: a control experiment, in which priorities belong to other transitions.

Where it learns as well as Ape-X DQN, it is not the priorities that help.
"""

import tensorflow as tf

import apex_agents as apex
from apex_agents.dqn.learning import DQNUpdate


class ShuffledPrioritiesUpdate(DQNUpdate):
    """Gives each transition of a batch the priority of another one, and logs the greatest."""

    def compute(self, transitions, weights):
        computed = super().compute(transitions, weights)
        metrics = {**computed.metrics, "max_priority": tf.reduce_max(computed.priorities)}
        return computed._replace(priorities=tf.random.shuffle(computed.priorities), metrics=metrics)


class ShuffledPrioritiesBuilder(apex.ApexDQNBuilder):
    """Makes the parts of Ape-X DQN, but with this update."""

    def make_update(self, spec, seed=0):
        networks = [self.make_networks(spec, seed) for _ in range(2)]
        return ShuffledPrioritiesUpdate(*networks, self.config)


if __name__ == "__main__":
    replay = apex.ReplayConfig(max_size=10_000, min_size=500, samples_per_insert=8)
    agent = apex.ApexDQNConfig(torso="mlp", frame_stack=0, batch_size=32, replay=replay)
    agent.learning_rate, agent.target_update_period, agent.variable_update_period = 1e-3, 100, 10
    evaluation = apex.EvaluationConfig(num_episodes=50, min_period_seconds=1.0)
    limits = apex.RunConfig(target_return=0.9, max_actor_steps=200_000, evaluation=evaluation)
    config = apex.ExperimentConfig(agent, apex.EnvironmentConfig("toy", "catch"), limits)
    run = apex.train(config, builder_fn=ShuffledPrioritiesBuilder, workdir="runs/shuffled")
    print("mean return of the last evaluation:", run.summary["last_return"])
