"""The settings of Ape-X DPG; every default is the paper's value for continuous control."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from apex_agents.fields import ReadWith
from apex_agents.replay.config import ReplayConfig
from apex_agents.torso_config import LayerSizes
from apex_agents.validation import BuilderName, Probability, Rule, name_or_function

TORSOS = ("mlp", "none")
_Torso = Annotated[str, name_or_function(*TORSOS)]
_DISTRIBUTION = ReadWith("critic", ("quantile", "categorical"))
_CATEGORICAL = ReadWith("critic", ("categorical",))


def _make_replay() -> ReplayConfig:
    return ReplayConfig(max_size=1_000_000, eviction_policy="prioritized")


@dataclasses.dataclass
class NoiseConfig:
    """Normal noise on actions with a constant standard deviation per environment (section 4.2).

    Attributes:
      noise_scale: standard deviation of the noise on each element of an action (appendix D: 0.3);
        with `min_noise_scale`, the scale in the most exploring environment.
      min_noise_scale: scale in the least exploring environment (Tassa et al. 2018: 1/32, below 1);
        None gives all environments `noise_scale`.
    """

    noise_scale: NonNegativeFloat = 0.3
    min_noise_scale: NonNegativeFloat | None = None

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        is_ladder = (self.min_noise_scale or 0) <= self.noise_scale
        yield "min_noise_scale", is_ladder, f"at most noise_scale, {self.noise_scale}"


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
      policy_learning_rate: learning rate of the policy alone; None is `learning_rate`.
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

    policy_torso: _Torso = "mlp"
    critic_torso: _Torso = "mlp"
    policy_hidden_sizes: Annotated[LayerSizes, Field(min_length=2, max_length=2)] = (300, 200)
    critic_hidden_sizes: Annotated[LayerSizes, Field(min_length=2, max_length=2)] = (400, 300)
    layer_norm: bool = False
    critic: Literal["scalar", "quantile", "categorical"] = "scalar"
    num_critics: Annotated[int, Field(ge=1, le=100)] = 1
    num_atoms: Annotated[int, Field(ge=2, le=1_000), _DISTRIBUTION] = 51
    min_return: Annotated[float, _CATEGORICAL] = -150.0
    max_return: Annotated[float, _CATEGORICAL] = 150.0
    normalize_observations: bool = False
    n_step: Annotated[int, Field(ge=1, le=10_000)] = 3
    discount: Probability = 0.99
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 256
    learning_rate: PositiveFloat = 1e-4
    policy_learning_rate: PositiveFloat | None = None
    max_action_gradient: PositiveFloat = 1.0
    max_gradient_norm: PositiveFloat = 40.0
    target_update_period: PositiveInt = 100
    target_update_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    variable_update_period: PositiveInt = 100
    publish_period: PositiveInt = 20
    num_sgd_steps_per_step: Annotated[int, Field(ge=1, le=1_000)] = 1
    exploration: NoiseConfig = dataclasses.field(default_factory=NoiseConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=_make_replay)
    builder: BuilderName = "standard"

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        for name in ("policy_hidden_sizes", "critic_hidden_sizes") if self.layer_norm else ():
            # A single unit minus its own mean would always be 0.
            yield name, min(getattr(self, name)) > 1, "at least 2 each with layer_norm"
        is_range = self.max_return > self.min_return
        yield "max_return", is_range, f"greater than min_return, {self.min_return}"
