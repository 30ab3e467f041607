"""The settings of Ape-X DPG; every default is the paper's value for continuous control."""

import dataclasses

from apex_agents.replay.config import ReplayConfig
from apex_agents.validation import (
    bounded,
    checked,
    layer_sizes,
    name_or_function,
    one_of,
    positive,
    require,
    require_fields,
)

TORSOS = ("mlp", "none")


def _make_replay() -> ReplayConfig:
    return ReplayConfig(max_size=1_000_000, eviction_policy="prioritized")


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


@dataclasses.dataclass
class ApexDPGConfig:
    """Ape-X DPG (Horgan et al. 2018, sections 3.2 and 4.2, appendix D).

    "As per DQN" marks the values that appendix D shares with appendix C, see `ApexDQNConfig`.

    Attributes:
      policy_torso: layers of the policy before its second hidden layer: 'mlp', its first hidden
        layer, with a tanh; 'none', where both hidden layers have ReLUs; or 'module:function', as
        `torso` of `ApexDQNConfig`. In front of 'mlp' and 'none' images pass convolutions, as those
        of the torso 'auto' there.
      critic_torso: the same for the critic: layers before the action enters. With 'none' it enters
        the first hidden layer, as in TD3 (Fujimoto et al. 2018).
      policy_hidden_sizes: units of the policy's two hidden layers (appendix D: 300, 200), the
        first of which is the torso 'mlp'.
      critic_hidden_sizes: units of the critic's two hidden layers (appendix D: 400, 300), as above.
      layer_norm: whether the hidden layers of both networks, but those of a torso of one's own, are
        normalized before their activations (Ba et al. 2016), which keeps policies from saturating.
      critic: what the critic gives out: 'scalar', the action value (the paper), or the distribution
        of the return, whose mean is the action value: 'quantile' (Dabney et al. 2018) or
        'categorical' (D4PG, Barth-Maron et al. 2018).
      num_critics: number of critics, which learn from the same batches and differ in their initial
        parameters alone; the smallest of their values counts, for targets, priorities and the
        policy (1 in the paper; 2 in TD3 and SAC, against values that are estimated too high).
        Learner steps and acting take longer with each.
      num_atoms: quantiles, or returns of 'categorical' (D4PG: 51).
      min_return: lowest atom of 'categorical' (Acme's D4PG: -150); values, which are discounted
        sums of rewards, that lie below it or above the highest one cannot be learned.
      max_return: its highest atom (Acme's D4PG: 150).
      normalize_observations: whether observations are normalized; see `ApexDQNConfig`.
      n_step: steps per transition (as per DQN: 3).
      discount: gamma per agent step (as per DQN: 0.99).
      batch_size: transitions per learner step (section 4.2: 256).
      learning_rate: step size of Adam, for both networks (appendix D: 1e-4).
      policy_learning_rate: that of the policy alone; None is `learning_rate`.
      max_action_gradient: limit to which each element of dq/da is clipped (appendix D: 1).
      max_gradient_norm: global norm to which the gradients of the critic, or of all critics
        together, are clipped (as per DQN: 40).
      target_update_period: learner steps between updates of the target networks (appendix D: 100).
      target_update_rate: how much of the way to the online networks they then go (appendix D: 1,
        copies); with a period of 1, tau of soft (Polyak) updates (0.005 in TD3, Fujimoto et al.
        2018).
      exploration: noise of the actors.
      variable_update_period: steps of each environment between two pulls of parameters by an actor
        (as per DQN: 100).
      publish_period: learner steps between two publications of parameters (as per DQN; at 86
        steps/s, 20 steps are 0.2 s).
      num_sgd_steps_per_step: learner steps per call of the compiled function; see `ApexDQNConfig`.
      replay: the replay memory (appendix D: 1 million transitions, evicted by priority).
      builder: maker of the agent's parts; see `ApexDQNConfig`.
    """

    policy_torso: str = name_or_function("mlp", TORSOS)
    critic_torso: str = name_or_function("mlp", TORSOS)
    policy_hidden_sizes: tuple[int, ...] = layer_sizes((300, 200), 2, 2)
    critic_hidden_sizes: tuple[int, ...] = layer_sizes((400, 300), 2, 2)
    layer_norm: bool = False
    critic: str = one_of("scalar", "quantile", "categorical")
    num_critics: int = bounded(1, 1, 100)
    num_atoms: int = bounded(51, 2, 1_000)
    min_return: float = -150.0
    max_return: float = 150.0
    normalize_observations: bool = False
    n_step: int = bounded(3, 1, 10_000)
    discount: float = bounded(0.99, 0, 1)
    batch_size: int = bounded(256, 1, 100_000)
    learning_rate: float = positive(1e-4)
    policy_learning_rate: float | None = positive(None)
    max_action_gradient: float = positive(1.0)
    max_gradient_norm: float = positive(40.0)
    target_update_period: int = positive(100)
    target_update_rate: float = checked(
        1.0, lambda rate: 0 < rate <= 1, "greater than 0 and at most 1"
    )
    variable_update_period: int = positive(100)
    publish_period: int = positive(20)
    num_sgd_steps_per_step: int = bounded(1, 1, 1_000)
    exploration: NoiseConfig = dataclasses.field(default_factory=NoiseConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=_make_replay)
    builder: str = name_or_function("standard", ("standard",))

    def validate(self, prefix: str = "agent.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)
        for name in ("policy_hidden_sizes", "critic_hidden_sizes") if self.layer_norm else ():
            # A single unit minus its own mean would always be 0.
            sizes, allowed = getattr(self, name), f"at least 2 each with {prefix}layer_norm"
            require(all(size > 1 for size in sizes), prefix + name, sizes, allowed)
        allowed = f"greater than {prefix}min_return, {self.min_return}"
        require(self.max_return > self.min_return, f"{prefix}max_return", self.max_return, allowed)
