"""The fields of agents' configs that name layers, with their types and conditions.

Configs import no TensorFlow, which `networks` does.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from apex_agents.fields import ReadWith
from apex_agents.validation import Rule, name_or_function, require

# The torsos that agents with discrete actions bring; networks.torso_choice makes them.
TORSOS = ("atari", "atari_small", "mlp", "conv", "auto")
CONV_FIELDS = ("conv_channels", "conv_kernel_sizes", "conv_strides")

TorsoName = Annotated[str, name_or_function(*TORSOS)]
# Like most upper limits of the configs, 10,000 units are no limit of the code: a larger number is a
# typing error that would take all memory, or hours, before its cause is visible.
LayerSizes = Annotated[tuple[Annotated[int, Field(ge=1, le=10_000)], ...], Field(max_length=16)]
ConvSizes = Annotated[LayerSizes, Field(min_length=1), ReadWith("torso", ("conv", "auto"))]
PartTorsos = Annotated[
    dict[str, Annotated[str, name_or_function("mlp")]], ReadWith("torso", ("mlp", "conv", "auto"))
]
MLPSizes = Annotated[LayerSizes, ReadWith("torso", ("mlp", "conv", "auto"))]


def require_torso(name: str, field: str, built_in: Sequence[str]) -> None:
    """Raise a ValueError unless a torso that is not user-defined is a built-in one."""
    allowed = f"{', '.join(map(repr, built_in))} or 'module:function'"
    require(name in built_in, field, name, allowed)


@dataclasses.dataclass
class TorsoConfig:
    """Layers between observations and the layers of an agent; agents' configs inherit it.

    Attributes:
      torso: 'atari' for stacks of uint8 frames [84, 84] (Mnih et al. 2015), 'atari_small' (Mnih et
        al. 2013), 'mlp' for vectors, 'conv' for images of any size, also in a Dict, 'auto' for the
        one of 'mlp' and 'conv' that fits the observations, or 'module:function', a function of
        yours that gets the environment's spec and this config and returns a Sonnet module from
        observations to features; see docs/tutorials/own_network.md.
      conv_channels: channels of each convolution of 'conv'. With 'auto' images from 36 x 36 pixels
        on have the convolutions of DQN, unless one of these three fields is set.
      conv_kernel_sizes: side length of its square kernels; there is no padding.
      conv_strides: its strides.
      part_torsos: torsos of parts of a Dict or a Tuple by their names, such as {'camera':
        'my_nets:make_torso'}, or 'mlp'; what they return joins the other parts.
      mlp_hidden_sizes: units of the layers of 'mlp', and of those behind the convolutions of
        'conv'.
    """

    torso: TorsoName = "atari"
    conv_channels: ConvSizes = (16,)
    conv_kernel_sizes: ConvSizes = (3,)
    conv_strides: ConvSizes = (1,)
    part_torsos: PartTorsos = dataclasses.field(default_factory=dict)
    mlp_hidden_sizes: MLPSizes = (256,)

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        length = len(self.conv_channels)
        for name in CONV_FIELDS[1:]:
            is_equal = len(getattr(self, name)) == length
            yield name, is_equal, f"as many numbers as conv_channels, {length}"
