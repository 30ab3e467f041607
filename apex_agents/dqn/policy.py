"""The policy of Ape-X DQN: epsilon-greedy, with a separate epsilon in each environment."""

import dm_env
import numpy as np

from apex_agents.acting.policy import EpsilonGreedy, PolicyOutput
from apex_agents.learning.losses import MUNCHAUSEN_ALPHA, MUNCHAUSEN_LOWEST, MUNCHAUSEN_TAU


class EpsilonGreedyPolicy(EpsilonGreedy):
    """Takes the action of the highest value, or a random one (Horgan et al. 2018, section 4.1).

    The network is one from observations `[E, ...]` to action values `[E, A]`.
    """

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        q_values = self._evaluate(timestep.observation).numpy()
        action, q_taken = self._choose(q_values)
        return PolicyOutput(action=action, q_taken=q_taken, value=q_values.max(axis=-1))


class MunchausenPolicy(EpsilonGreedyPolicy):
    """Acts in the same way; its outputs give TD errors of `munchausen_values`.

    value = tau * log(sum_a exp(q_a / tau)),  tau * log pi(a) = q_a - value
    """

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        q_values = self._evaluate(timestep.observation).numpy()
        action, q_taken = self._choose(q_values)
        best = q_values.max(axis=-1)
        weights = np.exp((q_values - best[:, np.newaxis]) / MUNCHAUSEN_TAU)
        value = best + MUNCHAUSEN_TAU * np.log(weights.sum(axis=-1))
        bonus = MUNCHAUSEN_ALPHA * np.maximum(q_taken - value, MUNCHAUSEN_LOWEST)
        return PolicyOutput(action=action, q_taken=q_taken - bonus, value=value)
