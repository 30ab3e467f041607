"""Evaluations of Stable-Baselines3's agents, in a run that lasts for a stated time."""

import json

from process_clock import seconds_of_process
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv


class TimedEvaluations(BaseCallback):
    """Evaluates periodically, and ends the run after the evaluation that is due at its end.

    Prints a line of JSON for each: seconds from the start of this process to the evaluation's end,
    mean return of whole games, agent steps, learner steps. DQN acts epsilon-greedily, A2C and PPO
    sample from their policy.
    """

    def __init__(
        self, environments: VecEnv, num_episodes: int, limit: float, period: float, epsilon: float
    ):
        """Store what is evaluated, and when.

        Args:
          environments: environments that are not those of training.
          num_episodes: games per evaluation.
          limit: wall time of the run, in seconds.
          period: seconds from the end of one evaluation to the next.
          epsilon: probability of DQN's random actions.
        """
        super().__init__()
        self._environments = environments
        self._num_episodes = num_episodes
        self._limit, self._period, self._due = limit, period, period
        self._epsilon = epsilon

    def _on_step(self) -> bool:
        if seconds_of_process() < min(self._due, self._limit):
            return True
        is_last = seconds_of_process() >= self._limit
        result = {"mean_return": self._play(self.model), "seconds": seconds_of_process()}
        updates = count_updates(self.model)
        steps = {"agent_steps": self.num_timesteps, "learner_steps": updates}
        print(json.dumps({**result, **steps}), flush=True)
        self._due = seconds_of_process() + self._period
        return not is_last

    def _play(self, model: BaseAlgorithm) -> float:
        """Return the mean return of whole games, with the epsilon of evaluations."""
        epsilon = getattr(model, "exploration_rate", None)
        if epsilon is not None:
            model.exploration_rate = self._epsilon
        mean_return, _ = evaluate_policy(
            model, self._environments, self._num_episodes, deterministic=False
        )
        if epsilon is not None:
            model.exploration_rate = epsilon
        return float(mean_return)


def count_updates(model: BaseAlgorithm) -> int:
    """Return the gradient steps so far, of which PPO counts its epochs alone."""
    batches = model.n_steps * model.n_envs // model.batch_size if isinstance(model, PPO) else 1
    return model._n_updates * batches
