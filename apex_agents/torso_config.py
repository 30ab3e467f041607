"""Types and conditions of the fields that name an agent's layers.

Configs import no TensorFlow, which `networks` does.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

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


def convolution_rules(config: Any) -> Iterator[Rule]:
    """Yield the conditions on the convolutions of a config; see `validation.check_config`."""
    first, *others = CONV_FIELDS
    length = len(getattr(config, first))
    for name in others:
        is_equal = len(getattr(config, name)) == length
        yield name, is_equal, f"as many numbers as {first}, {length}"
