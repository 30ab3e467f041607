"""The settings of Ape-X DPG; every default is the paper's value for continuous control."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from apex_agents.replay.config import ReplayConfig
from apex_agents.validation import MAX_LAYER_SIZE, bounded, checked, positive, require_fields


def _make_replay() -> ReplayConfig:
    return ReplayConfig(max_size=1_000_000, eviction_policy="prioritized")


def _are_two_sizes(sizes: Sequence[int]) -> bool:
    return len(sizes) == 2 and all(0 < size <= MAX_LAYER_SIZE for size in sizes)


def _layers(sizes: tuple[int, ...]) -> Any:
    return checked(sizes, _are_two_sizes, f"two whole numbers from 1 to {MAX_LAYER_SIZE}")


@dataclasses.dataclass
class ApexDPGConfig:
    """Ape-X DPG (Horgan et al. 2018, sections 3.2 and 4.2, appendix D).

    "As per DQN" marks what appendix D leaves at the values of `ApexDQNConfig`.

    Attributes:
      policy_hidden_sizes: units of the policy's two hidden layers (appendix D: 300, 200).
      critic_hidden_sizes: units of the critic's two hidden layers (appendix D: 400, 300); the
        action enters the second one.
      n_step: steps per transition (as per DQN: 3).
      discount: gamma per agent step (as per DQN: 0.99).
      batch_size: transitions per learner step (section 4.2: 256).
      learning_rate: of Adam, for both networks (appendix D: 1e-4).
      max_action_gradient: each element of dq/da is clipped to plus or minus this before it moves
        the policy (appendix D: 1).
      max_gradient_norm: global norm to which the critic's gradients are clipped (as per DQN: 40).
      target_update_period: learner steps between copies to the target networks (appendix D: 100).
      noise_scale: standard deviation of the normal noise on each element of an action, whose
        bounds are -1 and 1 (appendix D: 0.3).
      variable_update_period: agent steps between two pulls of parameters by an actor (as per DQN:
        100).
      publish_period: learner steps between two publications of parameters (the paper's learner
        answers requests; at 86 steps/s, 20 steps are 0.2 s).
      num_sgd_steps_per_step: learner steps per call of the compiled function. More than 1 saves
        time with small networks; all of its batches are sampled, and their priorities written,
        together.
      replay: the replay memory (appendix D: 1 million transitions, evicted by priority).
    """

    policy_hidden_sizes: tuple[int, ...] = _layers((300, 200))
    critic_hidden_sizes: tuple[int, ...] = _layers((400, 300))
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
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_fields(self, prefix)
