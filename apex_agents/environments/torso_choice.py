"""Which torso fits the observations of an environment, and what to set if another one is named.

Configs are those of agents with the fields `torso` and `frame_stack`.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from apex_agents.environments.images import fitting_convolutions, has_images, is_image, part_specs
from apex_agents.environments.vector_environment import EnvironmentSpec
from apex_agents.validation import TORSOS

_AUTO = "auto"
_CONV_FIELDS = ("conv_channels", "conv_kernel_sizes", "conv_strides")


def fit_torso(config: Any, spec: EnvironmentSpec) -> Any:
    """Return the config of an agent with the torso that fits the observations in place of 'auto'.

    It is 'conv' for images and for a Dict or a Tuple with images, and 'mlp' for all else and for
    images that are too small. Convolutions are those of `fitting_convolutions`, unless the config
    has others than its class.
    """
    if getattr(config, "torso", None) != _AUTO:
        return config
    config = copy.copy(config)  # With attributes that are no fields, unlike `replace`.
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    fitting = fitting_convolutions(spec, _stack_of(config, spec))
    config.torso = "conv" if fitting else "mlp"
    if fitting and all(getattr(config, name) == defaults[name] for name in _CONV_FIELDS):
        for name, values in zip(_CONV_FIELDS, zip(*fitting, strict=True), strict=True):
            setattr(config, name, values)
    return config


def torso_warning(config: Any, spec: EnvironmentSpec) -> str | None:
    """Return a warning if fully connected layers get images that convolutions would fit."""
    if getattr(config, "torso", None) != "mlp" or not fitting_convolutions(
        spec, _stack_of(config, spec)
    ):
        return None
    shape = list(spec.observations.shape)
    return (
        f"agent.torso is 'mlp', but observations are images {shape}: with agent.torso='auto' they "
        "pass convolutions."
    )


def _stack_of(config: Any, spec: EnvironmentSpec) -> int:
    """Return how many frames an observation is a stack of, 0 if it is none."""
    shape = spec.observations.shape
    return shape[0] if len(shape) > 1 and shape[0] == config.frame_stack else 0


def is_own_torso(config: Any, torso_fn: Any) -> bool:
    """Return whether the user has given the torso."""
    return torso_fn is not None or config.torso not in TORSOS


def check_observations(config: Any, spec: EnvironmentSpec, torso_fn: Any) -> None:
    """Raise a ValueError that says what to set, unless torso and stack fit the observations."""
    config = fit_torso(config, spec)
    shape, dtype = spec.observations.shape, spec.observations.dtype
    is_stack = bool(_stack_of(config, spec))
    fits = is_stack or not config.frame_stack
    given, advice, observed = "", "agent.frame_stack=0", f"{dtype} {shape}"
    if not is_own_torso(config, torso_fn):
        given = f"agent.torso is {config.torso!r} and "
        stack = shape[0] if is_stack or (len(shape) == 4 and is_image(spec)) else 0
        torso = "conv" if is_image(spec) else "mlp"
        # Three images may also be the colours of one, unless the config says that they are a stack.
        if shape[1:] == (84, 84) and is_image(spec) and (is_stack or shape[0] != 3):
            torso, stack = "atari", shape[0]
        if has_images(spec) and not is_image(spec):
            torso, shapes = _AUTO, [part.observations.shape for part in part_specs(spec)]
            observed = f"parts {', '.join(map(str, shapes))} with images among them"
            fits = fits and config.torso == "conv"
        elif config.torso == "conv":
            fits = fits and len(shape) - is_stack in (2, 3)
        if config.torso == "atari":
            fits = is_stack and torso == "atari"
        advice = f"agent.torso={torso!r}, agent.frame_stack={stack}"
    if not fits:
        raise ValueError(
            f"{given}agent.frame_stack is {config.frame_stack}, but observations are {observed}: "
            f"set {advice}."
        )


def require_no_normalized_images(normalize_observations: bool, spec: EnvironmentSpec) -> None:
    """Raise a ValueError if observations are images, or have some, and are to be normalized."""
    if normalize_observations and has_images(spec):
        shapes = [part.observations.shape for part in part_specs(spec) if is_image(part)]
        raise ValueError(
            "agent.normalize_observations is True, but observations are images of shape "
            f"{', '.join(map(str, shapes))}, which are scaled anyway; it has to be False."
        )
