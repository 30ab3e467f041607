"""The settings of Ape-X DQN; every default is the paper's value for Atari."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.fields import ReadWith
from apex_agents.replay.config import ReplayConfig
from apex_agents.torso_config import ConvSizes, MLPSizes, PartTorsos, TorsoName, convolution_rules
from apex_agents.validation import BuilderName, Probability, Rule

_ADAM, _RMSPROP = ReadWith("optimizer", ("adam",)), ReadWith("optimizer", ("rmsprop",))


@dataclasses.dataclass
class ApexDQNConfig:
    """Ape-X DQN (Horgan et al. 2018, sections 3.1 and 4.1, appendix C).

    Attributes:
      torso: layers below the two streams: 'atari' for stacks of uint8 frames [84, 84] (Mnih et al.
        2015), 'atari_small' (Mnih et al. 2013), 'mlp' for vectors, 'conv' for images of any size,
        also in a Dict, 'auto' for the one of 'mlp' and 'conv' that fits the observations, or
        'module:function', a function of yours that gets the environment's spec and this config and
        returns a Sonnet module from observations to features; see docs/tutorials/own_network.md.
      conv_channels: channels of each convolution of 'conv'. With 'auto' images from 36 x 36 pixels
        on have the convolutions of DQN, unless one of these three fields is set.
      conv_kernel_sizes: side length of its square kernels; there is no padding.
      conv_strides: its strides.
      part_torsos: torsos of parts of a Dict or a Tuple by their names, such as {'camera':
        'my_nets:make_torso'}, or 'mlp'; what they return joins the other parts.
      mlp_hidden_sizes: units of the layers of 'mlp', and of those behind the convolutions of
        'conv'.
      head: output of the two streams for each action: 'dueling', its value (the paper), or
        'quantile', quantiles of its return (Dabney et al. 2018), whose mean is the value.
      num_quantiles: quantiles of 'quantile' (Dabney et al. 2018: 200).
      stream_hidden_size: units of each stream's hidden layer (Wang et al. 2016: 512).
      frame_stack: frames per observation, along its first axis and sliding by one per step (Mnih
        et al. 2015: 4); 0 if observations are not stacked.
      normalize_observations: whether vectors are normalized by the mean and the variance of what
        the learner has sampled so far, in proportion to how often it was sampled.
      target: value to bootstrap from: 'double', the target network's for the online network's best
        action (the paper), or 'munchausen', that of a soft policy, whose log-probability of the
        action taken is added to the reward (Vieillard et al. 2020).
      n_step: steps per transition (appendix C: 3).
      discount: gamma per agent step (Mnih et al. 2015: 0.99).
      batch_size: transitions per learner step (section 4.1: 512).
      optimizer: 'rmsprop', centered RMSProp (appendix C), 'adam' (Kingma & Ba 2015) or 'adagrad'
        (Duchi et al. 2011), that of Gorila.
      learning_rate: step size of the optimizer (appendix C: 0.00025 / 4).
      learning_rate_steps: learner steps over which the learning rate of Adam falls linearly to a
        tenth, where it stays; None: it does not fall (appendix C).
      adam_epsilon: epsilon of Adam; None is 0.01 / batch_size (Dabney et al. 2018, section 5.1).
      rmsprop_decay: decay of the running means of RMSProp (appendix C: 0.95).
      rmsprop_epsilon: epsilon of RMSProp, under the root (appendix C: 1.5e-7).
      max_gradient_norm: global norm to which gradients are clipped (appendix C: 40).
      target_update_period: learner steps between copies to the target network (appendix C: 2500).
      variable_update_period: steps per environment between two pulls (section 4.1: 400 frames).
      publish_period: learner steps between two publications of parameters, 1 s at the paper's 19/s.
      num_sgd_steps_per_step: learner steps per call of the compiled function, whose batches are
        sampled and prioritized together. More than 1 saves time with small networks.
      bfloat16: whether CPUs that can do so compute convolutions and hidden layers in bfloat16; the
        learner's variables and optimizer stay in float32.
      exploration: epsilons of the actors and of the evaluator.
      replay: settings of the replay memory.
      builder: maker of the agent's parts: 'standard', or 'module:function', such as your own
        subclass of `ApexDQNBuilder`; see docs/tutorials/own_program.md.
    """

    torso: TorsoName = "atari"
    conv_channels: ConvSizes = (16,)
    conv_kernel_sizes: ConvSizes = (3,)
    conv_strides: ConvSizes = (1,)
    part_torsos: PartTorsos = dataclasses.field(default_factory=dict)
    mlp_hidden_sizes: MLPSizes = (256,)
    head: Literal["dueling", "quantile"] = "dueling"
    num_quantiles: Annotated[int, Field(ge=1, le=1_000), ReadWith("head", ("quantile",))] = 32
    stream_hidden_size: Annotated[int, Field(ge=1, le=10_000)] = 512
    frame_stack: NonNegativeInt = 4
    normalize_observations: bool = False
    target: Literal["double", "munchausen"] = "double"
    n_step: Annotated[int, Field(ge=1, le=10_000)] = 3
    discount: Probability = 0.99
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 512
    optimizer: Literal["rmsprop", "adam", "adagrad"] = "rmsprop"
    learning_rate: PositiveFloat = 0.00025 / 4
    learning_rate_steps: Annotated[PositiveInt | None, _ADAM] = None
    adam_epsilon: Annotated[PositiveFloat | None, _ADAM] = None
    rmsprop_decay: Annotated[float, Field(ge=0.1, le=1), _RMSPROP] = 0.95
    rmsprop_epsilon: Annotated[PositiveFloat, _RMSPROP] = 1.5e-7
    max_gradient_norm: PositiveFloat = 40.0
    target_update_period: PositiveInt = 2500
    variable_update_period: PositiveInt = 100
    publish_period: PositiveInt = 20
    num_sgd_steps_per_step: Annotated[int, Field(ge=1, le=1_000)] = 1
    bfloat16: bool = False
    exploration: ExplorationConfig = dataclasses.field(default_factory=ExplorationConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    builder: BuilderName = "standard"

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        return convolution_rules(self)
