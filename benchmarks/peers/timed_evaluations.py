"""Evaluations of Stable-Baselines3's agents, in a run that ends by the time or at a return."""

import json
import math

from process_clock import seconds_of_process
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv


class TimedEvaluations(BaseCallback):
    """Evaluates periodically, and ends the run after the evaluation that is due at its end.

    Prints a line of JSON for each: seconds from the start of this process to the evaluation's end,
    mean return of whole episodes, agent steps, learner steps.
    """

    def __init__(  # noqa: PLR0913
        self,
        environments: VecEnv,
        num_episodes: int,
        limit: float,
        period: float,
        *,
        period_steps: int = 1,
        target: float = math.inf,
        epsilon: float = 0.0,
        is_greedy: bool = False,
    ):
        """Store what is evaluated, and when.

        Args:
          environments: environments that are not those of training.
          num_episodes: episodes per evaluation.
          limit: wall time of the run, in seconds.
          period: seconds from the end of one evaluation to the next.
          period_steps: evaluations before the end are after a multiple of so many agent steps.
          target: mean return that ends the run, too.
          epsilon: probability of DQN's random actions, if it is not greedy.
          is_greedy: whether actions are the best ones or the mean; else DQN acts epsilon-greedily
            and the others sample from their policy.
        """
        super().__init__()
        self._environments = environments
        self._num_episodes = num_episodes
        self._limit, self._period, self._due = limit, period, period
        self._period_steps, self._target = period_steps, target
        self._epsilon, self._is_greedy = epsilon, is_greedy

    def _on_step(self) -> bool:
        is_last = seconds_of_process() >= self._limit
        is_due = self.num_timesteps % self._period_steps == 0 and seconds_of_process() >= self._due
        if not is_due and not is_last:
            return True
        result = {"mean_return": self._play(self.model), "seconds": seconds_of_process()}
        updates = count_updates(self.model)
        steps = {"agent_steps": self.num_timesteps, "learner_steps": updates}
        print(json.dumps({**result, **steps}), flush=True)
        self._due = seconds_of_process() + self._period
        return not is_last and result["mean_return"] < self._target

    def _play(self, model: BaseAlgorithm) -> float:
        """Return the mean return of whole episodes, with the epsilon of evaluations."""
        epsilon = getattr(model, "exploration_rate", None)
        if epsilon is not None:
            model.exploration_rate = self._epsilon
        mean_return, _ = evaluate_policy(
            model,
            self._environments,
            self._num_episodes,
            deterministic=self._is_greedy,
            warn=False,
        )
        if epsilon is not None:
            model.exploration_rate = epsilon
        return float(mean_return)


def count_updates(model: BaseAlgorithm) -> int:
    """Return the gradient steps so far, of which PPO counts its epochs alone."""
    batches = model.n_steps * model.n_envs // model.batch_size if isinstance(model, PPO) else 1
    return model._n_updates * batches
