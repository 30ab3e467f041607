"""The policy of Ape-X DQN: epsilon-greedy, with its own epsilon in each environment."""

from collections.abc import Sequence

import numpy as np
import sonnet as snt

from apex_agents.acting.policy import CompiledFunction, PolicyOutput


class EpsilonGreedyPolicy:
    """Takes the action of the highest value, or a random one (Horgan et al. 2018, section 4.1).

    Attributes:
      variables: `{'network': ...}`, variables of the network.
      exploration: `{'epsilon': [E]}`, probability of a uniformly random action in each environment.
    """

    def __init__(self, network: snt.Module, epsilons: Sequence[float] | np.ndarray, seed: int):
        """Wrap a network whose variables exist; `epsilons` are one per environment, `[E]`."""
        self.variables = {"network": network.variables}
        self._epsilons = np.asarray(epsilons)
        self.exploration = {"epsilon": self._epsilons}
        self._evaluate = CompiledFunction(network)
        self._random = np.random.default_rng(seed)

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        q_values = self._evaluate(observation).numpy()
        num_envs, num_actions = q_values.shape
        explore = self._random.random(num_envs) < self._epsilons
        uniform = self._random.integers(num_actions, size=num_envs)
        action = np.where(explore, uniform, q_values.argmax(axis=-1)).astype(np.int32)
        q_taken = q_values[np.arange(num_envs), action]
        return PolicyOutput(action=action, q_taken=q_taken, value=q_values.max(axis=-1))
