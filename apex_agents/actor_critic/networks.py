"""Policy and value on one torso (Mnih et al. 2016, section 5.1)."""

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
    torso = make_torso(config, spec, observations, torso_fn=torso_fn)
    network = ActorCriticNetwork(torso, config.hidden_size, spec)
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
        self, torso: snt.Module, hidden_size: int, spec: EnvironmentSpec, name: str | None = None
    ):
        """Put the layers on a torso; with `hidden_size` 0 the heads read it directly."""
        super().__init__(name=name)
        self._torso, self._spec = torso, spec
        self._hidden = snt.Linear(hidden_size, name="hidden") if hidden_size else None
        # Small weights: a policy that begins close to uniform, and values close to 0.
        num_actions = spec.actions.num_values
        self._policy = snt.Linear(num_actions, w_init=_orthogonal(0.01), name="policy")
        self._value = snt.Linear(1, w_init=_orthogonal(1.0), name="value")

    def __call__(self, observation: tf.Tensor) -> PolicyAndValue:
        """Map observations `[B, ...]` to the policy's logits `[B, A]` and values `[B]`."""
        features = self._torso(observation)
        if self._hidden is not None:
            features = tf.nn.relu(self._hidden(features))
        logits = mask_values(self._policy(features), observation, self._spec)
        return PolicyAndValue(logits, tf.squeeze(self._value(features), axis=-1))


def _orthogonal(gain: float) -> snt.initializers.Initializer:
    return snt.initializers.Orthogonal(gain)
