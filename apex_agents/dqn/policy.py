"""The policy of Ape-X DQN: epsilon-greedy, with a separate epsilon in each environment."""

import dm_env

from apex_agents.acting.policy import EpsilonGreedy, PolicyOutput


class EpsilonGreedyPolicy(EpsilonGreedy):
    """Takes the action of the highest value, or a random one (Horgan et al. 2018, section 4.1).

    The network is one from observations `[E, ...]` to action values `[E, A]`.
    """

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        q_values = self._evaluate(timestep.observation).numpy()
        action, q_taken = self._choose(q_values)
        return PolicyOutput(action=action, q_taken=q_taken, value=q_values.max(axis=-1))
