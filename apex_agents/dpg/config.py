"""The settings of Ape-X DPG; every default is the paper's value for continuous control."""

import dataclasses

from apex_agents.replay.config import ReplayConfig
from apex_agents.validation import bounded, layer_sizes, name_or_function, positive, require_fields

TORSOS = ("mlp",)


def _make_replay() -> ReplayConfig:
    return ReplayConfig(max_size=1_000_000, eviction_policy="prioritized")


@dataclasses.dataclass
class ApexDPGConfig:
    """Ape-X DPG (Horgan et al. 2018, sections 3.2 and 4.2, appendix D).

    "As per DQN" marks the values that appendix D shares with appendix C, see `ApexDQNConfig`.

    Attributes:
      policy_torso: layers of the policy before its second hidden layer: 'mlp', which is its first
        hidden layer, or 'module:function', as `torso` of `ApexDQNConfig`.
      critic_torso: the same for the critic: layers before the action enters.
      policy_hidden_sizes: units of the policy's two hidden layers (appendix D: 300, 200), the
        first of which is the torso 'mlp'.
      critic_hidden_sizes: units of the critic's two hidden layers (appendix D: 400, 300), as above.
      normalize_observations: whether observations are normalized; see `ApexDQNConfig`.
      n_step: steps per transition (as per DQN: 3).
      discount: gamma per agent step (as per DQN: 0.99).
      batch_size: transitions per learner step (section 4.2: 256).
      learning_rate: step size of Adam, for both networks (appendix D: 1e-4).
      max_action_gradient: limit to which each element of dq/da is clipped (appendix D: 1).
      max_gradient_norm: global norm to which the critic's gradients are clipped (as per DQN: 40).
      target_update_period: learner steps between copies to the target networks (appendix D: 100).
      noise_scale: standard deviation of the noise on each element of an action (appendix D: 0.3).
      variable_update_period: agent steps between two pulls by an actor (as per DQN: 100).
      publish_period: learner steps between two publications of parameters (as per DQN; at 86
        steps/s, 20 steps are 0.2 s).
      num_sgd_steps_per_step: learner steps per call of the compiled function; see `ApexDQNConfig`.
      replay: the replay memory (appendix D: 1 million transitions, evicted by priority).
    """

    policy_torso: str = name_or_function("mlp", TORSOS)
    critic_torso: str = name_or_function("mlp", TORSOS)
    policy_hidden_sizes: tuple[int, ...] = layer_sizes((300, 200), 2, 2)
    critic_hidden_sizes: tuple[int, ...] = layer_sizes((400, 300), 2, 2)
    normalize_observations: bool = False
    n_step: int = bounded(3, 1, 10_000)
    discount: float = bounded(0.99, 0, 1)
    batch_size: int = bounded(256, 1, 100_000)
    learning_rate: float = positive(1e-4)
    max_action_gradient: float = positive(1.0)
    max_gradient_norm: float = positive(40.0)
    target_update_period: int = positive(100)
    noise_scale: float = bounded(0.3, 0)
    variable_update_period: int = positive(100)
    publish_period: int = positive(20)
    num_sgd_steps_per_step: int = bounded(1, 1, 1_000)
    replay: ReplayConfig = dataclasses.field(default_factory=_make_replay)

    def validate(self, prefix: str = "agent.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)
