"""Dueling networks (Wang et al. 2016) on any torso."""

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec, has_mask
from apex_agents.learning.distributions import ReturnDistribution, expected_value, quantiles
from apex_agents.legal_actions import LegalActions
from apex_agents.networks.dueling import DuelingHead
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.torso_choice import make_torso
from apex_agents.own_torso import TorsoFn


def make_network(
    config: ApexDQNConfig,
    spec: EnvironmentSpec,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> "ActionValueNetwork":
    """Build the action-value network of a config; its variables exist.

    Args:
      config: torso and sizes of the network.
      spec: specification of one environment, with A actions.
      dtype: dtype of the variables of all layers but the output layers and a user-defined torso.
      torso_fn: maker of the torso in place of the config's.

    Returns:
      A module from observations `[B, ...]` to action values `[B, A]` float32, for calls in
      `computing_in`, too. Its variables are called `torso/conv_1/w`, `head/hidden/w` and so on.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    observations, layers = zero_observations(spec), []
    if config.normalize_observations:
        layers.append(RunningNormalization(spec.observations.shape, name="normalization"))
        observations = layers[0](observations)
    torso = make_torso(config, spec, observations, dtype, torso_fn)
    distribution = make_distribution(config)
    num_actions = spec.actions.num_values
    head = DuelingHead(config.stream_hidden_size, num_actions, distribution.shape, name="head")
    head(torso(observations))
    network = snt.Sequential([*layers, torso, head])
    if has_mask(spec):
        network = LegalActions(network, spec)
    return ActionValueNetwork(network, distribution)


def make_distribution(config: ApexDQNConfig) -> ReturnDistribution:
    """Make the output distribution of a config's head."""
    return quantiles(config.num_quantiles) if config.head == "quantile" else expected_value()


class ActionValueNetwork(snt.Module):
    """Action values as the means of distributions of the return.

    Attributes:
      return_distribution: module from observations `[B, ...]` to distributions `[B, A, *shape]`.
    """

    def __init__(self, layers: snt.Module, distribution: ReturnDistribution):
        """Wrap layers that give out `distribution` for each action."""
        super().__init__()
        self.return_distribution = layers
        self._mean = distribution.mean

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to action values `[B, A]`."""
        return self._mean(self.return_distribution(observation))
