"""The policy of R2D2: epsilon-greedy, with a memory of the episode in each environment."""

from collections.abc import Sequence

import dm_env
import numpy as np
import tensorflow as tf

from apex_agents.acting.policy import EpsilonGreedy, PolicyOutput
from apex_agents.r2d2.networks import RecurrentNetwork

NO_ACTION = -1  # Before the first action of an episode.


class RecurrentPolicy(EpsilonGreedy):
    """Takes the action of the highest value, or a random one.

    It remembers the recurrent state of the network, which is `PolicyOutput.state`, and the action
    that it took last.
    """

    def __init__(
        self,
        network: RecurrentNetwork,
        epsilons: Sequence[float] | np.ndarray,
        seed: int,
        annealing_steps: int | None = None,
    ):
        """Begin an episode in each environment; `EpsilonGreedy` documents the arguments."""
        super().__init__(network, epsilons, seed, annealing_steps)
        num_envs = len(self._epsilons)
        self._initial = [part.numpy() for part in network.initial_state(num_envs)]
        self._state = self._initial
        self._action = np.full(num_envs, NO_ACTION, np.int32)

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        values, before, state = self._evaluate_at(timestep)
        self._state = [part.numpy() for part in state]
        self._action, q_taken = self._choose(values)
        return PolicyOutput(self._action, q_taken, values.max(axis=-1), before)

    def value(self, timestep: dm_env.TimeStep) -> np.ndarray:
        return self._evaluate_at(timestep)[0].max(axis=-1)

    def _evaluate_at(
        self, timestep: dm_env.TimeStep
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...], Sequence[tf.Tensor]]:
        """Return the action values, and the recurrent state before and after a time step."""
        is_first = timestep.step_type == dm_env.StepType.FIRST
        reward = np.where(is_first, 0.0, timestep.reward).astype(np.float32)
        action = np.where(is_first, NO_ACTION, self._action).astype(np.int32)
        before = [
            np.where(is_first.reshape([-1] + [1] * (part.ndim - 1)), initial, part)
            for part, initial in zip(self._state, self._initial, strict=True)
        ]
        q_values, state = self._evaluate(timestep.observation, action, reward, *before)
        return q_values.numpy(), tuple(before), state
