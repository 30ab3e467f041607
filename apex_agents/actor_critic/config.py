"""The settings of the advantage actor-critic, A2C and A3C (Mnih et al. 2016)."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from apex_agents.fields import ReadWith
from apex_agents.torso_config import ConvSizes, MLPSizes, PartTorsos, TorsoName, convolution_rules
from apex_agents.validation import BuilderName, Probability, Rule


@dataclasses.dataclass
class ActorCriticConfig:
    """Settings that A2C and A3C have in common.

    A worker is an actor, with all of its environments, that computes gradients. Defaults are those
    of the A3C paper (Mnih et al. 2016) where a section of it is named. The paper's network for
    Atari is the torso 'atari_small'.

    Attributes:
      torso: layers below policy and value, as in `ApexDQNConfig`.
      conv_channels: channels of each convolution of 'conv'.
      conv_kernel_sizes: side length of its square kernels; there is no padding.
      conv_strides: its strides.
      part_torsos: torsos of parts of a Dict or a Tuple by their names, such as {'camera':
        'my_nets:make_torso'}, or 'mlp'; what they return joins the other parts.
      mlp_hidden_sizes: units of the layers of 'mlp', and of those behind the convolutions of
        'conv'.
      mlp_activation: activation of the layers of 'mlp', 'relu' or 'tanh'.
      frame_stack: frames per observation, 0 if they are not stacked.
      hidden_size: units of the hidden layer between a torso and the two heads, 0 for none (A3C
        paper, section 5.1: 256).
      separate_value: whether the value has a torso and a hidden layer of its own (the A3C paper
        shares them).
      n_step: steps in each environment between two gradients of a worker (A3C paper, section
        5.1: 5).
      discount: gamma per agent step (A3C paper, section 8: 0.99).
      learning_rate: step size of RMSProp (A3C paper, section 8: drawn between 1e-4 and 1e-2).
      learning_rate_steps: learner steps over which the learning rate falls linearly to a tenth,
        where it stays; None: it does not fall (A3C paper, section 8: to 0 at the end of the run).
      rmsprop_decay: decay of the running mean of RMSProp (A3C paper, section 8: 0.99).
      rmsprop_epsilon: epsilon of RMSProp, under the root (A3C paper, section 4: none named).
      max_gradient_norm: global norm to which the applied gradients are clipped (not mentioned).
      value_coefficient: weight of the value's squared error beside the policy's loss (the
        A3C paper names none).
      entropy_coefficient: weight of the policy's entropy (A3C paper, section 8: 0.01).
      greedy_evaluation: whether evaluations take the most likely action; otherwise they sample, as
        those of the A3C paper do.
      max_wait_seconds: seconds that an update of A2C waits for further gradients after its first
        one, and that a worker waits for new parameters.
      queue_size: maximum number of gradients in the queue; workers wait while it is full.
      builder: maker of the agent's parts, as in `ApexDQNConfig`.
    """

    is_synchronous: ClassVar[bool]

    torso: TorsoName = "atari"
    conv_channels: ConvSizes = (16,)
    conv_kernel_sizes: ConvSizes = (3,)
    conv_strides: ConvSizes = (1,)
    part_torsos: PartTorsos = dataclasses.field(default_factory=dict)
    mlp_hidden_sizes: MLPSizes = (64, 64)
    mlp_activation: Annotated[Literal["relu", "tanh"], ReadWith("torso", ("mlp", "auto"))] = "relu"
    frame_stack: NonNegativeInt = 4
    hidden_size: Annotated[int, Field(ge=0, le=10_000)] = 256
    separate_value: bool = False
    n_step: Annotated[int, Field(ge=1, le=10_000)] = 5
    discount: Probability = 0.99
    learning_rate: PositiveFloat = 7e-4
    learning_rate_steps: PositiveInt | None = None
    rmsprop_decay: Annotated[float, Field(ge=0.1, le=1)] = 0.99
    rmsprop_epsilon: PositiveFloat = 1e-5
    max_gradient_norm: PositiveFloat = 0.5
    value_coefficient: NonNegativeFloat = 0.5
    entropy_coefficient: NonNegativeFloat = 0.01
    greedy_evaluation: bool = False
    max_wait_seconds: PositiveFloat = 10.0
    queue_size: Annotated[int, Field(ge=1, le=10_000)] = 4
    builder: BuilderName = "standard"

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        return convolution_rules(self)


@dataclasses.dataclass
class A2CConfig(ActorCriticConfig):
    """A2C: each update averages a gradient of each worker, all of the same parameters."""

    is_synchronous: ClassVar[bool] = True


@dataclasses.dataclass
class A3CConfig(ActorCriticConfig):
    """A3C: each gradient is applied as it arrives; workers do not wait for each other."""

    is_synchronous: ClassVar[bool] = False
