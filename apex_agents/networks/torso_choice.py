"""The torso of an agent with discrete actions: the one of its config, or that fits observations."""

from __future__ import annotations

import dataclasses
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec, has_mask, without_mask
from apex_agents.fields import with_fields
from apex_agents.legal_actions import drop_masks
from apex_agents.networks.observations import (
    has_images,
    is_image,
    part_name,
    part_specs,
    zero_observations,
)
from apex_agents.networks.torsos import (
    ATARI_CONVOLUTIONS,
    ConvTorso,
    PartsTorso,
    VectorTorso,
    fitting_convolutions,
)
from apex_agents.own_torso import TorsoFn, is_own_torso, make_own_torso
from apex_agents.torso_config import CONV_FIELDS, TORSOS, require_torso
from apex_agents.validation import require

_AUTO = "auto"


def make_torso(
    config: Any,
    spec: EnvironmentSpec,
    observations: tf.Tensor,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> tf.Module:
    """Build a torso, from observations `[B, ...]` to features `[B, F]`.

    Args:
      config: settings of the agent.
      spec: specification of one environment.
      observations: two observations, `[2, ...]`, with which a user-defined torso is tried.
      dtype: dtype of the variables, unless the torso is user-defined.
      torso_fn: maker of the torso in place of the config's.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    if has_mask(spec):
        own, rest = drop_masks(observations, spec), without_mask(spec)
        torso = make_torso(config, rest, own, dtype, torso_fn)
        return snt.Sequential([lambda masked: drop_masks(masked, spec), torso])
    if is_own_torso(config.torso, torso_fn):
        own, allowed = config.part_torsos, "left out with a torso of yours, which sees all parts"
        require(not own, "agent.part_torsos", own, allowed)
        return make_own_torso(config.torso, "agent.torso", torso_fn, spec, config, observations)
    require_torso(config.torso, "agent.torso", TORSOS)
    config = fit_torso(config, spec)
    own_torsos = _make_part_torsos(config, spec, dtype)
    if config.torso == "mlp" and not own_torsos:
        # Layers for Q-learning have ReLUs.
        activation = getattr(tf.nn, getattr(config, "mlp_activation", "relu"))
        return VectorTorso(config.mlp_hidden_sizes, spec, dtype, activation, name="torso")
    convolutions, hidden_sizes = ATARI_CONVOLUTIONS.get(config.torso), ()
    if convolutions is None:
        sizes = [getattr(config, name) for name in CONV_FIELDS]
        convolutions, hidden_sizes = tuple(zip(*sizes, strict=True)), config.mlp_hidden_sizes
    if part_specs(spec) != [spec]:
        return PartsTorso(convolutions, hidden_sizes, spec, dtype, own_torsos, name="torso")
    return ConvTorso(convolutions, hidden_sizes, spec, config.frame_stack, dtype, name="torso")


def _make_part_torsos(config: Any, spec: EnvironmentSpec, dtype: tf.DType) -> dict[str, tf.Module]:
    """Make the torsos that parts of the observations have of their own, by their names."""
    parts = {part_name(part): part for part in part_specs(spec) if part != spec}
    torsos: dict[str, tf.Module] = {}
    for name, torso in config.part_torsos.items():
        field = f"agent.part_torsos[{name!r}]"
        allowed = f"one of {', '.join(map(repr, parts))}"
        allowed = allowed if parts else "left out, since observations have no parts"
        require(name in parts, "a name in agent.part_torsos", name, allowed)
        part, scope = parts[name], f"part_{[*parts].index(name) + 1}"
        if torso == "mlp":
            torsos[name] = VectorTorso(config.mlp_hidden_sizes, part, dtype, name=scope)
        else:
            with tf.name_scope(scope):
                zeros = zero_observations(part)
                torsos[name] = make_own_torso(torso, field, None, part, config, zeros)
    return torsos


def fit_torso(config: Any, spec: EnvironmentSpec) -> Any:
    """Return the config of an agent with the torso that fits the observations in place of 'auto'.

    It is 'conv' for images and for a Dict or a Tuple with images, and 'mlp' for all else and for
    images that are too small. `fitting_convolutions` chooses the convolutions, unless the config
    changes the defaults of its class.
    """
    if getattr(config, "torso", None) != _AUTO:
        return config
    spec = without_mask(spec)
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    fitting = fitting_convolutions(spec, _stack_size(config, spec))
    chosen: dict[str, Any] = {"torso": "conv" if fitting else "mlp"}
    if fitting and all(getattr(config, name) == defaults[name] for name in CONV_FIELDS):
        chosen |= zip(CONV_FIELDS, zip(*fitting, strict=True), strict=True)
    return with_fields(config, **chosen)


def check_observations(config: Any, spec: EnvironmentSpec, torso_fn: TorsoFn | None) -> None:
    """Raise a ValueError that says what to set, unless torso and stack fit the observations."""
    spec = without_mask(spec)
    shape, dtype = spec.observations.shape, spec.observations.dtype
    stack, is_one_image = _stack_size(config, spec), is_image(spec)
    fits = config.frame_stack == stack
    given, advice, observed = "", "", f"{dtype} {shape}"
    if not is_own_torso(config.torso, torso_fn):
        torso, is_atari = fit_torso(config, spec).torso, is_one_image and shape[1:] == (84, 84)
        given, advice = f"agent.torso is {torso!r} and ", f"agent.torso={_AUTO!r}, "
        if has_images(spec) and not is_one_image:
            fits = fits and torso == "conv"
            shapes = [str(part.observations.shape) for part in part_specs(spec)]
            observed = f"parts {', '.join(shapes)} with images among them"
        elif torso == "conv":
            fits = fits and len(shape) - bool(stack) in (2, 3)
        if torso in ATARI_CONVOLUTIONS:
            fits = bool(stack) and is_atari
        # Three images may also be the colours of one, unless the config says that they are a stack.
        if (is_atari and shape[0] != 3) or (is_one_image and len(shape) == 4):
            stack = shape[0]
    if not fits:
        raise ValueError(
            f"{given}agent.frame_stack is {config.frame_stack}, but observations are {observed}: "
            f"set {advice}agent.frame_stack={stack}."
        )


def require_no_normalized_images(normalize_observations: bool, spec: EnvironmentSpec) -> None:
    """Raise a ValueError if observations are images, or have some, and are to be normalized."""
    spec = without_mask(spec)
    if normalize_observations and has_images(spec):
        shapes = [part.observations.shape for part in part_specs(spec) if is_image(part)]
        raise ValueError(
            "agent.normalize_observations is True, but observations are images of shape "
            f"{', '.join(map(str, shapes))}, which are scaled anyway; it has to be False."
        )


def _stack_size(config: Any, spec: EnvironmentSpec) -> int:
    """Return the number of frames in an observation, 0 if it is no stack of them."""
    shape = spec.observations.shape
    return config.frame_stack if len(shape) > 1 and shape[0] == config.frame_stack else 0
