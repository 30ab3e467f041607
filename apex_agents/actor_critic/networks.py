"""Policy and value, on one torso (Mnih et al. 2016, section 5.1) or on one each."""

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.legal_actions import mask_values
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.torso_choice import make_torso
from apex_agents.own_torso import TorsoFn


def make_network(
    config: ActorCriticConfig, spec: EnvironmentSpec, torso_fn: TorsoFn | None = None
) -> "ActorCriticNetwork":
    """Build the network of a config; its variables exist.

    Args:
      config: torso and sizes of the network.
      spec: specification of one environment.
      torso_fn: maker of the torso in place of the config's.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    observations = zero_observations(spec)
    torso, value_torso = make_torso(config, spec, observations, torso_fn=torso_fn), None
    if config.separate_value:
        with tf.name_scope("value"):
            value_torso = make_torso(config, spec, observations, torso_fn=torso_fn)
    network = ActorCriticNetwork(torso, config.hidden_size, spec, value_torso)
    network(observations)
    return network


class PolicyAndValue(NamedTuple):
    """Outputs of the network.

    Attributes:
      logits: `[B, A]`, of the policy.
      value: `[B]`.
    """

    logits: tf.Tensor
    value: tf.Tensor


class ActorCriticNetwork(snt.Module):
    """A torso, a hidden layer, and an output layer each for the policy and for the value."""

    def __init__(
        self,
        torso: tf.Module,
        hidden_size: int,
        spec: EnvironmentSpec,
        value_torso: tf.Module | None = None,
        name: str | None = None,
    ):
        """Put the layers on torsos; with `hidden_size` 0 the heads read them directly.

        Args:
          torso: torso of the policy.
          hidden_size: units of the hidden layer on each torso.
          spec: specification of one environment.
          value_torso: torso of the value; None for the policy's.
          name: name of the module.
        """
        super().__init__(name=name)
        self._spec = spec
        self._torso, self._hidden = torso, _make_hidden(hidden_size, "hidden")
        self._value_torso, self._value_hidden = value_torso, None
        if value_torso is not None:
            self._value_hidden = _make_hidden(hidden_size, "value_hidden")
        # Small weights: a policy that begins close to uniform, and values close to 0.
        num_actions, orthogonal = spec.actions.num_values, snt.initializers.Orthogonal
        self._policy = snt.Linear(num_actions, w_init=orthogonal(0.01), name="policy")
        self._value = snt.Linear(1, w_init=orthogonal(1.0), name="value")

    def __call__(self, observation: tf.Tensor) -> PolicyAndValue:
        """Map observations `[B, ...]` to the policy's logits `[B, A]` and values `[B]`."""
        features = value_features = _activate(self._hidden, self._torso(observation))
        if self._value_torso is not None:
            value_features = _activate(self._value_hidden, self._value_torso(observation))
        logits = mask_values(self._policy(features), observation, self._spec)
        return PolicyAndValue(logits, tf.squeeze(self._value(value_features), axis=-1))


def _make_hidden(size: int, name: str) -> snt.Linear | None:
    return snt.Linear(size, name=name) if size else None


def _activate(hidden: snt.Linear | None, features: tf.Tensor) -> tf.Tensor:
    return features if hidden is None else tf.nn.relu(hidden(features))
