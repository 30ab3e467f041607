"""Exploration of Ape-X DQN: the ladder of epsilons."""

import dataclasses

import numpy as np

from apex_agents.validation import bounded, positive, require_fields


@dataclasses.dataclass
class ExplorationConfig:
    """Epsilon-greedy exploration with a constant epsilon per environment (section 4.1).

    Attributes:
      epsilon: epsilon of the most exploring environment (section 4.1: 0.4).
      alpha: how steeply epsilon falls from environment to environment (section 4.1: 7).
      num_distinct_epsilons: number of different values, spread over the whole ladder (appendix B:
        6 in the ablation); None gives each environment its own.
      evaluation_epsilon: epsilon of the evaluator (appendix B: 0.00164 for learning curves).
    """

    epsilon: float = bounded(0.4, 0, 1)
    alpha: float = bounded(7.0, 0)
    num_distinct_epsilons: int | None = positive(None)
    evaluation_epsilon: float = bounded(0.00164, 0, 1)

    def validate(self, prefix: str = "exploration.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)


def epsilon_ladder(config: ExplorationConfig, num_envs: int) -> np.ndarray:
    """Return the epsilon of each environment of all actors.

      epsilon_i = epsilon ** (1 + i / (N - 1) * alpha),  i = 0 .. N - 1

    Source: Horgan et al. 2018, section 4.1; a single environment gets `epsilon`.

    Args:
      config: ends of the ladder and, optionally, its number of rungs.
      num_envs: N, environments of all actors together, which the paper calls actors.

    Returns:
      `[N]` float64, decreasing.
    """
    rungs = min(config.num_distinct_epsilons or num_envs, num_envs)
    rung = np.arange(num_envs) * rungs // num_envs
    return config.epsilon ** (1 + rung / max(rungs - 1, 1) * config.alpha)
