"""A critic of one's own, as a config file: apex-dpg --config=examples/own_critic.py."""

import sonnet as snt
import tensorflow as tf

import apex_agents as apex


class Critic(snt.Module):
    """Attention over the numbers of state and action, each of which is a token."""

    def __init__(self):
        super().__init__()
        self.embed, self.queries, self.keys = (snt.Linear(16) for _ in range(3))
        self.output = snt.nets.MLP([64, 1])

    def __call__(self, observation, action):
        return self.return_distribution(observation, action)

    def return_distribution(self, observation, action):
        numbers = tf.linalg.diag(tf.concat([observation, action], axis=1))  # [B, N, N]
        places = tf.eye(numbers.shape[1], batch_shape=tf.shape(numbers)[:1])
        tokens = self.embed(tf.concat([places, numbers], axis=2))  # [B, N, 16]
        scores = tf.matmul(self.queries(tokens), self.keys(tokens), transpose_b=True)
        tokens += tf.matmul(tf.nn.softmax(scores / 4.0), tokens)
        return tf.squeeze(self.output(snt.flatten(tokens)), axis=1)  # [B]


class CriticBuilder(apex.ApexDPGBuilder):
    def make_networks(self, spec, seed=0):
        networks, critic = super().make_networks(spec, seed), Critic()
        critic(tf.zeros([1, 3]), tf.zeros([1, 1]))  # Makes its variables.
        return networks._replace(critic=critic)


def get_config():
    config = apex.load_config("apex_dpg_pendulum")
    config.agent.builder = f"{__name__}:CriticBuilder"
    return config
