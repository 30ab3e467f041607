"""Epsilon-greedy exploration, with a separate epsilon in each environment."""

import dataclasses
from typing import Annotated

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from apex_agents.fields import ReadWith
from apex_agents.validation import Probability

_LADDER = ReadWith("annealing_steps", (None,))


@dataclasses.dataclass
class ExplorationConfig:
    """Epsilon-greedy exploration with a constant epsilon per environment (section 4.1).

    With `annealing_steps` there is a single epsilon, which falls while the agent learns, as in DQN.

    Attributes:
      epsilon: epsilon of the most exploring environment (section 4.1: 0.4).
      alpha: alpha in epsilon^(1 + alpha * i / (N - 1)), i = 0 .. N - 1 (section 4.1: 7).
      num_distinct_epsilons: number of different values, spread over the whole ladder (appendix B:
        6 in the ablation); None gives each environment its own.
      evaluation_epsilon: epsilon of the evaluator (appendix B: 0.00164 for learning curves).
      annealing_steps: learner steps during which the epsilon of all environments falls linearly
        from 1 to `epsilon` (Mnih et al. 2015: to 0.1 within a million agent steps); None is the
        ladder.
    """

    epsilon: Probability = 0.4
    alpha: Annotated[NonNegativeFloat, _LADDER] = 7.0
    num_distinct_epsilons: Annotated[PositiveInt | None, _LADDER] = None
    evaluation_epsilon: Probability = 0.00164
    annealing_steps: PositiveInt | None = None


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
