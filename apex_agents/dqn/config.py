"""The settings of Ape-X DQN; every default is the paper's value for Atari."""

import dataclasses

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.replay.config import ReplayConfig
from apex_agents.validation import bounded, checked, layer_sizes, positive, require_fields

NETWORKS = ("atari", "mlp")


@dataclasses.dataclass
class ApexDQNConfig:
    """Ape-X DQN (Horgan et al. 2018, sections 3.1 and 4.1, appendix C).

    Attributes:
      network: 'atari' for stacks of uint8 frames [84, 84] (Wang et al. 2016), 'mlp' for vectors.
      mlp_hidden_sizes: units of the layers below the two streams; read by 'mlp' only.
      stream_hidden_size: units of each stream's hidden layer (Wang et al. 2016: 512).
      frame_stack: frames per observation (Mnih et al. 2015: 4), 0 if it is no stack of frames.
      n_step: steps per transition (appendix C: 3).
      discount: gamma per agent step (Mnih et al. 2015: 0.99).
      batch_size: transitions per learner step (section 4.1: 512).
      learning_rate: step size of centered RMSProp (appendix C: 0.00025 / 4).
      rmsprop_decay: decay of the running means of RMSProp (appendix C: 0.95).
      rmsprop_epsilon: epsilon of RMSProp, under the root (appendix C: 1.5e-7).
      max_gradient_norm: global norm to which gradients are clipped (appendix C: 40).
      target_update_period: learner steps between copies to the target network (appendix C: 2500).
      variable_update_period: agent steps between two pulls by an actor (section 4.1: 400 frames).
      publish_period: learner steps between two publications of parameters (the paper's learner
        answers requests; at 19 steps/s, 20 steps are well below the 2.8 s between two requests).
      num_sgd_steps_per_step: learner steps per call of the compiled function, whose batches are
        sampled and prioritized together. More than 1 saves time with small networks.
      bfloat16: whether CPUs that can do so compute convolutions and hidden layers in bfloat16; the
        learner's variables and optimiser stay in float32.
      exploration: epsilons of the actors and of the evaluator.
      replay: settings of the replay memory.
    """

    network: str = checked("atari", NETWORKS.__contains__, f"one of {NETWORKS}")
    mlp_hidden_sizes: tuple[int, ...] = layer_sizes((256,), 0, 16)
    stream_hidden_size: int = bounded(512, 1, 10_000)
    frame_stack: int = bounded(4, 0)
    n_step: int = bounded(3, 1, 10_000)
    discount: float = bounded(0.99, 0, 1)
    batch_size: int = bounded(512, 1, 100_000)
    learning_rate: float = positive(0.00025 / 4)
    rmsprop_decay: float = bounded(0.95, 0, 1)
    rmsprop_epsilon: float = positive(1.5e-7)
    max_gradient_norm: float = positive(40.0)
    target_update_period: int = positive(2500)
    variable_update_period: int = positive(100)
    publish_period: int = positive(20)
    num_sgd_steps_per_step: int = bounded(1, 1, 1_000)
    bfloat16: bool = False
    exploration: ExplorationConfig = dataclasses.field(default_factory=ExplorationConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)

    def validate(self, prefix: str = "agent.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)
