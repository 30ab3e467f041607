"""The policy of Ape-X DQN: epsilon-greedy, with a separate epsilon in each environment."""

from collections.abc import Sequence

import dm_env
import numpy as np
import sonnet as snt
import tensorflow as tf

from apex_agents.acting.policy import CompiledFunction, PolicyOutput
from apex_agents.dqn.config import ExplorationConfig


def epsilon_ladder(config: ExplorationConfig, num_envs: int) -> np.ndarray:
    """Return the epsilon of each environment of all actors.

      epsilon_i = epsilon ** (1 + i / (N - 1) * alpha),  i = 0 .. N - 1

    Source: Horgan et al. 2018, section 4.1; a single environment gets `epsilon`; with
    annealing, all do.

    Args:
      config: ends of the ladder and, optionally, its number of rungs.
      num_envs: N, environments of all actors together, which the paper calls actors.

    Returns:
      `[N]` float64, not increasing.
    """
    if config.annealing_steps is not None:
        return np.full(num_envs, config.epsilon)
    rungs = min(config.num_distinct_epsilons or num_envs, num_envs)
    rung = np.arange(num_envs) * rungs // num_envs
    return config.epsilon ** (1 + rung / max(rungs - 1, 1) * config.alpha)


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
        self.variables: dict[str, Sequence[tf.Variable]] = {"network": network.variables}
        self._num_updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._annealing_steps = annealing_steps
        if annealing_steps is not None:
            self.variables["num_updates"] = [self._num_updates]
        self._epsilons = np.asarray(epsilons)
        self.exploration = {"epsilon": self._epsilons}
        self._evaluate = CompiledFunction(network)
        self._random = np.random.default_rng(seed)

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        q_values = self._evaluate(timestep.observation).numpy()
        num_envs, num_actions = q_values.shape
        explore = self._random.random(num_envs) < self._current_epsilons()
        uniform = self._random.integers(num_actions, size=num_envs)
        action = np.where(explore, uniform, q_values.argmax(axis=-1)).astype(np.int32)
        q_taken = q_values[np.arange(num_envs), action]
        return PolicyOutput(action=action, q_taken=q_taken, value=q_values.max(axis=-1))

    def _current_epsilons(self) -> np.ndarray:
        if self._annealing_steps is None:
            return self._epsilons
        progress = min(int(self._num_updates) / self._annealing_steps, 1.0)
        return 1.0 + progress * (self._epsilons - 1.0)
