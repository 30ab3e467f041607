"""An exploration schedule of one's own: apex-dqn --config=examples/own_exploration.py."""

import numpy as np
import tensorflow as tf

import apex_agents as apex
from apex_agents.acting.policy import CompiledFunction, PolicyOutput
from apex_agents.legal_actions import is_legal


class HalvingPolicy:
    """Epsilon-greedy; all epsilons halve every `half_life` learner steps."""

    def __init__(self, network, epsilons, half_life, seed):
        self.half_life, self.learner_steps = half_life, tf.Variable(0, dtype=tf.int64)
        self.variables = {"network": network.variables, "num_updates": [self.learner_steps]}
        self.exploration = {"epsilon": epsilons}  # What is logged: where they begin.
        self.evaluate, self.random = CompiledFunction(network), np.random.default_rng(seed)

    def __call__(self, timestep):
        q = self.evaluate(timestep.observation).numpy()  # [E, A]
        epsilons = self.exploration["epsilon"] * 0.5 ** (int(self.learner_steps) / self.half_life)
        uniform = np.where(is_legal(q), self.random.random(q.shape), -1.0).argmax(axis=1)
        action = np.where(self.random.random(len(q)) < epsilons, uniform, q.argmax(axis=1))
        return PolicyOutput(action.astype(np.int32), q[range(len(q)), action], q.max(axis=1))


class HalvingBuilder(apex.ApexDQNBuilder):
    def make_policy(self, spec, env_indices, num_envs, seed):
        epsilons = np.linspace(1.0, 0.2, num_envs)[list(env_indices)]
        half_life = self.config.exploration.annealing_steps
        return HalvingPolicy(self.make_networks(spec, seed), epsilons, half_life, seed)


def get_config():
    config = apex.load_config("apex_dqn_cartpole")
    config.agent.builder = f"{__name__}:HalvingBuilder"
    config.agent.exploration.annealing_steps = 500  # Has the learner steps sent to actors.
    return config
