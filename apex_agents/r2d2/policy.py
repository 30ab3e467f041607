"""The policy of R2D2: epsilon-greedy, with a memory of the episode in each environment."""

from collections.abc import Sequence

import dm_env
import numpy as np
import tensorflow as tf

from apex_agents.acting.policy import CompiledFunction, EpsilonGreedy, PolicyOutput
from apex_agents.r2d2.networks import RecurrentNetwork

NO_ACTION = -1  # Before the first action of an episode.


class RecurrentPolicy:
    """Takes the action of the highest value, or a random one.

    It remembers the recurrent state of the network, which is `PolicyOutput.state`, and the action
    that it took last.

    Attributes:
      variables: `{'network': ...}`, variables of the network.
      exploration: `{'epsilon': [E]}`, probability of a uniformly random action in each environment.
    """

    def __init__(
        self,
        network: RecurrentNetwork,
        epsilons: Sequence[float] | np.ndarray,
        seed: int,
        annealing_steps: int | None = None,
    ):
        """Wrap a network whose variables exist.

        Args:
          network: recurrent action-value network.
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
        num_envs = len(self._explore.epsilons)
        self._initial = [part.numpy() for part in network.initial_state(num_envs)]
        self._state = self._initial
        self._action = np.full(num_envs, NO_ACTION, np.int32)

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        is_first = timestep.step_type == dm_env.StepType.FIRST
        reward = np.where(is_first, 0.0, timestep.reward).astype(np.float32)
        action = np.where(is_first, NO_ACTION, self._action).astype(np.int32)
        before = [
            np.where(is_first.reshape([-1] + [1] * (part.ndim - 1)), initial, part)
            for part, initial in zip(self._state, self._initial, strict=True)
        ]
        q_values, state = self._evaluate(timestep.observation, action, reward, *before)
        self._state = [part.numpy() for part in state]
        values = q_values.numpy()
        self._action, q_taken = self._explore.choose(values)
        return PolicyOutput(self._action, q_taken, values.max(axis=-1), tuple(before))
