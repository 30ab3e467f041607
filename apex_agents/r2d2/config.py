"""The settings of R2D2; every default is the paper's value for Atari."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.fields import ReadWith
from apex_agents.replay.config import ReplayConfig
from apex_agents.torso_config import ConvSizes, MLPSizes, PartTorsos, TorsoName, convolution_rules
from apex_agents.validation import BuilderName, Probability, Rule, name_or_function

CORES = ("lstm", "gru", "none")

_Length = Annotated[int, Field(ge=1, le=10_000)]


def _make_replay() -> ReplayConfig:
    return ReplayConfig(
        max_size=100_000,
        min_size=1_250,
        priority_exponent=0.9,
        importance_sampling_exponent=0.6,
        prefetch_batches=4,
    )


@dataclasses.dataclass
class R2D2Config:
    """R2D2 (Kapturowski et al. 2019, section 2.3 and table 2).

    Attributes:
      torso: layers below the core, as in `ApexDQNConfig`.
      conv_channels: channels of each convolution of 'conv'.
      conv_kernel_sizes: side length of its square kernels; there is no padding.
      conv_strides: its strides.
      part_torsos: torsos of parts of a Dict or a Tuple by their names, such as {'camera':
        'my_nets:make_torso'}, or 'mlp'; what they return joins the other parts.
      mlp_hidden_sizes: units of the layers of 'mlp', and of those behind the convolutions of
        'conv'.
      core: recurrent core: 'lstm' (the paper), 'gru', 'none', a network without a memory, or
        'module:function', a function of the environment's spec and this config that returns a new
        `snt.RNNCore`; see docs/tutorials/memory.md.
      core_size: units of the core (512).
      previous_action_input: whether the core sees the previous action (the paper: yes).
      previous_reward_input: whether the core sees the reward of the previous action (yes).
      stream_hidden_size: units of each stream's hidden layer (512).
      frame_stack: frames per observation, along its first axis (4); 0 if observations are not
        stacked.
      normalize_observations: whether vectors are normalized by their running mean and variance.
      sequence_length: trained steps of a sequence, m (80).
      burn_in_length: steps before them from which the recurrent state is computed anew, l (40).
      sequence_period: steps between the beginnings of two sequences (40); m less that many steps
        are in both.
      stored_state: whether sequences begin with the state that the actor had, rather than with
        zeros (the paper: yes).
      measure_staleness: whether sequences also hold the recurrent states that acting had at their
        first and last trained steps, with which the learner logs Delta Q (section 3).
      rescale_values: whether values are learned in the scale of h(x) = sign(x) (sqrt(|x| + 1) - 1)
        + 0.001 x (the paper: yes).
      priority_max_share: eta in eta max |delta| + (1 - eta) mean |delta|, the priority of a
        sequence (0.9).
      n_step: steps of a return (5).
      discount: gamma per agent step (0.997).
      batch_size: sequences per learner step (64).
      learning_rate: step size of Adam (1e-4).
      learning_rate_steps: learner steps over which the learning rate falls linearly to a tenth;
        None: it does not fall.
      adam_epsilon: epsilon of Adam (1e-3).
      max_gradient_norm: global norm to which gradients are clipped (80, as in rlpyt).
      target_update_period: learner steps between copies to the target network (2500).
      variable_update_period: steps per environment between two pulls of parameters (400).
      publish_period: learner steps between two publications of parameters.
      num_sgd_steps_per_step: learner steps per call of the compiled function.
      bfloat16: whether CPUs that can do so compute convolutions and hidden layers in bfloat16.
      exploration: epsilons of the actors and of the evaluator.
      replay: settings of the replay memory, whose items are sequences.
      builder: maker of the agent's parts, as in `ApexDQNConfig`.
    """

    torso: TorsoName = "atari"
    conv_channels: ConvSizes = (16,)
    conv_kernel_sizes: ConvSizes = (3,)
    conv_strides: ConvSizes = (1,)
    part_torsos: PartTorsos = dataclasses.field(default_factory=dict)
    mlp_hidden_sizes: MLPSizes = (256,)
    core: Annotated[str, name_or_function(*CORES)] = "lstm"
    core_size: Annotated[int, Field(ge=1, le=10_000), ReadWith("core", ("lstm", "gru"))] = 512
    previous_action_input: bool = True
    previous_reward_input: bool = True
    stream_hidden_size: Annotated[int, Field(ge=1, le=10_000)] = 512
    frame_stack: NonNegativeInt = 4
    normalize_observations: bool = False
    sequence_length: _Length = 80
    burn_in_length: Annotated[int, Field(ge=0, le=10_000)] = 40
    sequence_period: _Length = 40
    stored_state: bool = True
    measure_staleness: bool = False
    rescale_values: bool = True
    priority_max_share: Probability = 0.9
    n_step: _Length = 5
    discount: Probability = 0.997
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 64
    learning_rate: PositiveFloat = 1e-4
    learning_rate_steps: PositiveInt | None = None
    adam_epsilon: PositiveFloat = 1e-3
    max_gradient_norm: PositiveFloat = 80.0
    target_update_period: PositiveInt = 2500
    variable_update_period: PositiveInt = 400
    publish_period: PositiveInt = 20
    num_sgd_steps_per_step: Annotated[int, Field(ge=1, le=1_000)] = 1
    bfloat16: bool = False
    exploration: ExplorationConfig = dataclasses.field(default_factory=ExplorationConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=_make_replay)
    builder: BuilderName = "standard"

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        yield from convolution_rules(self)
        fits = self.sequence_period <= self.sequence_length
        yield "sequence_period", fits, f"at most sequence_length, {self.sequence_length}"
        has_state = self.core != "none"
        yield "measure_staleness", has_state or not self.measure_staleness, "False without a core"
