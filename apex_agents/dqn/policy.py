"""The policy of Ape-X DQN: epsilon-greedy, with a separate epsilon in each environment."""

from collections.abc import Sequence

import dm_env
import numpy as np
import sonnet as snt
import tensorflow as tf

from apex_agents.acting.policy import CompiledFunction, EpsilonGreedy, PolicyOutput


class EpsilonGreedyPolicy:
    """Takes the action of the highest value, or a random one (Horgan et al. 2018, section 4.1).

    Attributes:
      variables: `{'network': ...}`, variables of the network; where epsilons are annealed, also
        `'num_updates'`, the learner steps that they depend on.
      exploration: `{'epsilon': [E]}`, probability of a uniformly random action in each environment;
        with annealing, the final value.
    """

    def __init__(
        self,
        network: snt.Module,
        epsilons: Sequence[float] | np.ndarray,
        seed: int,
        annealing_steps: int | None = None,
    ):
        """Wrap a network whose variables exist.

        Args:
          network: from observations `[E, ...]` to action values `[E, A]`.
          epsilons: epsilon of each environment, `[E]`.
          seed: seed of the random actions.
          annealing_steps: learner steps during which all of them fall linearly from 1.
        """
        self._evaluate = CompiledFunction(network)
        self._explore = EpsilonGreedy(epsilons, seed, annealing_steps)
        self.variables: dict[str, Sequence[tf.Variable]] = {
            "network": network.variables,
            **self._explore.variables,
        }
        self.exploration = {"epsilon": self._explore.epsilons}

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        q_values = self._evaluate(timestep.observation).numpy()
        action, q_taken = self._explore.choose(q_values)
        return PolicyOutput(action=action, q_taken=q_taken, value=q_values.max(axis=-1))
