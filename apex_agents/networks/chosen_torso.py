"""The torso that a config names, for agents with discrete actions."""

from typing import Any

import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.observations import is_image
from apex_agents.networks.own_torso import TorsoFn, find_own_torso
from apex_agents.networks.torsos import DQN_CONVOLUTIONS, ConvTorso, VectorTorso
from apex_agents.validation import TORSOS


def make_torso(
    config: Any,
    spec: EnvironmentSpec,
    observations: tf.Tensor,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> tf.Module:
    """Build a torso, from observations `[B, ...]` to features `[B, F]`.

    Args:
      config: settings of which `torso`, `frame_stack`, `conv_*` and `mlp_hidden_sizes` are read.
      spec: specification of one environment.
      observations: two observations, `[2, ...]`, with which a torso of the user's is tried.
      dtype: dtype of the variables, but for a torso of the user's.
      torso_fn: maker of the torso in place of the config's.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    own_torso = find_own_torso(config.torso, "agent.torso", TORSOS, torso_fn)
    if own_torso is not None:
        return own_torso.make(spec, config, observations)
    if config.torso == "mlp":
        return VectorTorso(config.mlp_hidden_sizes, spec, dtype, name="torso")
    convolutions, hidden_sizes = DQN_CONVOLUTIONS, ()
    if config.torso == "conv":
        sizes = (config.conv_channels, config.conv_kernel_sizes, config.conv_strides)
        convolutions, hidden_sizes = tuple(zip(*sizes, strict=True)), config.mlp_hidden_sizes
    return ConvTorso(convolutions, hidden_sizes, spec, config.frame_stack, dtype, name="torso")


def is_own_torso(config: Any, torso_fn: TorsoFn | None) -> bool:
    """Return whether the user has given the torso."""
    return torso_fn is not None or config.torso not in TORSOS


def check_observations(config: Any, spec: EnvironmentSpec, torso_fn: TorsoFn | None) -> None:
    """Raise a ValueError that says what to set, unless torso and stack fit the observations."""
    shape, dtype = spec.observations.shape, spec.observations.dtype
    is_stack = len(shape) > 1 and shape[0] == config.frame_stack
    fits = is_stack or not config.frame_stack
    given, advice = "", "agent.frame_stack=0"
    if not is_own_torso(config, torso_fn):
        given = f"agent.torso is {config.torso!r} and "
        stack = shape[0] if is_stack or (len(shape) == 4 and is_image(spec)) else 0
        torso = "conv" if is_image(spec) else "mlp"
        # Three images may also be the colours of one, unless the config says that they are a stack.
        if shape[1:] == (84, 84) and is_image(spec) and (is_stack or shape[0] != 3):
            torso, stack = "atari", shape[0]
        advice = f"agent.torso={torso!r}, agent.frame_stack={stack}"
        if config.torso == "atari":
            fits = is_stack and torso == "atari"
        elif config.torso == "conv":
            fits = fits and len(shape) - is_stack in (2, 3)
    if not fits:
        raise ValueError(
            f"{given}agent.frame_stack is {config.frame_stack}, but observations are {dtype} "
            f"{shape}: set {advice}."
        )
