"""How much each environment explores: ladders of epsilons (DQN) and of noise scales (DPG)."""

import dataclasses

import numpy as np

from apex_agents.validation import bounded, positive, require, require_fields


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

    epsilon: float = bounded(0.4, 0, 1)
    alpha: float = bounded(7.0, 0)
    num_distinct_epsilons: int | None = positive(None)
    evaluation_epsilon: float = bounded(0.00164, 0, 1)
    annealing_steps: int | None = positive(None)

    def validate(self, prefix: str = "exploration.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)


@dataclasses.dataclass
class NoiseConfig:
    """Normal noise on actions with a constant standard deviation per environment (section 4.2).

    Attributes:
      noise_scale: standard deviation of the noise on each element of an action (appendix D: 0.3);
        with `min_noise_scale`, that of the most exploring environment.
      min_noise_scale: that of the least exploring environment (Tassa et al. 2018: 1/32, below 1);
        None gives all environments `noise_scale`.
    """

    noise_scale: float = bounded(0.3, 0)
    min_noise_scale: float | None = bounded(None, 0)

    def validate(self, prefix: str = "exploration.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)
        allowed = f"at most {prefix}noise_scale, {self.noise_scale}"
        is_ladder = (self.min_noise_scale or 0) <= self.noise_scale
        require(is_ladder, f"{prefix}min_noise_scale", self.min_noise_scale, allowed)


def epsilon_ladder(config: ExplorationConfig, num_envs: int) -> np.ndarray:
    """Return the epsilon of each environment of all actors.

      epsilon_i = epsilon ** (1 + i / (N - 1) * alpha),  i = 0 .. N - 1

    Source: Horgan et al. 2018, section 4.1; a single one gets `epsilon`, as do all that anneal it.

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


def noise_ladder(config: NoiseConfig, num_envs: int) -> np.ndarray:
    """Return the standard deviation of the noise in each environment of all actors.

      noise_scale_i = noise_scale + i / (N - 1) * (min_noise_scale - noise_scale),  i = 0 .. N - 1

    Source: Tassa et al. 2018, section 5; a single environment gets `noise_scale`.

    Args:
      config: ends of the ladder.
      num_envs: N, environments of all actors together.

    Returns:
      `[N]` float64, not increasing.
    """
    least = config.noise_scale if config.min_noise_scale is None else config.min_noise_scale
    return np.linspace(config.noise_scale, least, num_envs)
