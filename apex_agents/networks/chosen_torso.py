"""The torso that a config names, for agents with discrete actions."""

from typing import Any

import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.images import DQN_CONVOLUTIONS, part_specs
from apex_agents.environments.torso_choice import fit_torso
from apex_agents.networks.own_torso import TorsoFn, find_own_torso
from apex_agents.networks.torsos import ConvTorso, PartsTorso, VectorTorso
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
    config = fit_torso(config, spec)
    if config.torso == "mlp":
        return VectorTorso(config.mlp_hidden_sizes, spec, dtype, name="torso")
    convolutions, hidden_sizes = DQN_CONVOLUTIONS, ()
    if config.torso == "conv":
        sizes = (config.conv_channels, config.conv_kernel_sizes, config.conv_strides)
        convolutions, hidden_sizes = tuple(zip(*sizes, strict=True)), config.mlp_hidden_sizes
    if part_specs(spec) != [spec]:
        return PartsTorso(convolutions, hidden_sizes, spec, dtype, name="torso")
    return ConvTorso(convolutions, hidden_sizes, spec, config.frame_stack, dtype, name="torso")
