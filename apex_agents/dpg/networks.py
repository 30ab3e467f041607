"""Policy and critic of Ape-X DPG (Horgan et al. 2018, appendix D)."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from apex_agents.dpg.config import TORSOS, ApexDPGConfig
from apex_agents.environments import EnvironmentSpec, require_unit_vectors
from apex_agents.learning.categorical import categorical
from apex_agents.learning.distributions import ReturnDistribution, expected_value, quantiles
from apex_agents.learning.losses import TDLoss, check_shapes
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.torsos import PartsTorso, VectorTorso, fitting_convolutions
from apex_agents.own_torso import TorsoFn, is_own_torso, make_own_torso
from apex_agents.torso_config import require_torso

# Appendix D names no activation after the second hidden layers and no initialization: as in DDPG
# (Lillicrap et al. 2016, section 7), ReLU, and output layers that begin close to 0.
_OUTPUT_INITIALIZER = snt.initializers.RandomUniform(-3e-3, 3e-3)


class DPGNetworks(NamedTuple):
    """Policy and critic of an agent.

    Attributes:
      policy: pi, from observations `[B, ...]` to actions `[B, D]` in [-1, 1].
      critic: q, from observations `[B, ...]` and actions `[B, D]` to action values `[B]`.
    """

    policy: snt.Module
    critic: "CriticNetwork | CriticEnsemble"


class PolicyNetwork(snt.Module):
    """a = pi(s), each element in [-1, 1]."""

    def __init__(
        self,
        torso: snt.Module,
        hidden_sizes: Sequence[int],
        action_size: int,
        layer_norm: bool = False,
        name: str | None = None,
    ):
        """Put hidden layers and the output layer on a torso."""
        super().__init__(name=name)
        self._torso, self._hidden = torso, _make_hidden_layers(hidden_sizes, layer_norm)
        self._output = _make_output_layer(action_size)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to actions `[B, D]`."""
        return tf.tanh(self._output(self._hidden(self._torso(observation))))


class CriticNetwork(snt.Module):
    """q(s, a); the action enters behind the torso (Lillicrap et al. 2016, section 7)."""

    def __init__(
        self,
        torso: snt.Module,
        hidden_sizes: Sequence[int],
        distribution: ReturnDistribution | None = None,
        layer_norm: bool = False,
        name: str | None = None,
    ):
        """Put hidden layers, the first of which reads the action, and the output on a torso."""
        super().__init__(name=name)
        self._distribution = distribution or expected_value()
        self._torso, self._hidden = torso, _make_hidden_layers(hidden_sizes, layer_norm)
        self._output = _make_output_layer(math.prod(self._distribution.shape))

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` and actions `[B, D]` to action values `[B]`."""
        return self._distribution.mean(self.return_distribution(observation, action))

    def return_distribution(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Map them to distributions of the return, `[B, *distribution.shape]`."""
        features, action = self._torso(observation), tf.cast(action, tf.float32)
        hidden = self._hidden(tf.concat([features, action], axis=-1))
        return tf.reshape(self._output(hidden), [-1, *self._distribution.shape])


class CriticEnsemble(snt.Module):
    """q(s, a) of several critics, each with its own parameters."""

    def __init__(
        self,
        critics: Sequence[CriticNetwork],
        distribution: ReturnDistribution,
        name: str | None = None,
    ):
        """Take the critics and the distribution of all together, see `smallest_of`."""
        super().__init__(name=name)
        self._critics, self._distribution = critics, distribution

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` and actions `[B, D]` to action values `[B]`."""
        return self._distribution.mean(self.return_distribution(observation, action))

    def return_distribution(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Map them to the outputs of the K critics, `[B, K, ...]`."""
        return tf.stack([c.return_distribution(observation, action) for c in self._critics], axis=1)


def make_networks(
    config: ApexDPGConfig, spec: EnvironmentSpec, torso_fn: TorsoFn | None = None
) -> DPGNetworks:
    """Build the networks of a config for one environment.

    Args:
      config: torsos and sizes of the networks, and the number of critics.
      spec: specification of one environment.
      torso_fn: maker of all torsos in place of the config's.

    Returns:
      Networks whose variables exist; their names begin with `policy/` and `critic/`, and those of
      further critics with `critic_2/`, `critic_3/` ...

    Raises:
      ValueError: actions are no vectors between -1 and 1, or a torso does not fit the environment.
    """
    require_unit_vectors(spec)
    (action_size,) = spec.actions.shape
    observation = zero_observations(spec)
    layer_norm, one = config.layer_norm, _make_distribution_of_one(config)
    names = ["critic", *(f"critic_{number}" for number in range(2, config.num_critics + 1))]
    critics = [
        CriticNetwork(
            *_make_torso(config, "critic", spec, torso_fn, name), one, layer_norm, name=name
        )
        for name in names
    ]
    critic = critics[0] if len(critics) == 1 else CriticEnsemble(critics, make_distribution(config))
    policy_torso = _make_torso(config, "policy", spec, torso_fn, "policy")
    policy = PolicyNetwork(*policy_torso, action_size, layer_norm, name="policy")
    critic(observation, policy(observation))
    return DPGNetworks(policy, critic)


def make_distribution(config: ApexDPGConfig) -> ReturnDistribution:
    """Make the output distribution of a config's critic."""
    one = _make_distribution_of_one(config)
    return one if config.num_critics == 1 else smallest_of(config.num_critics, one)


def smallest_of(num_critics: int, one: ReturnDistribution) -> ReturnDistribution:
    """Combine critics so that the smallest of their values counts.

      q = min_k q_k
      loss = sum_k loss_k, where all bootstrap from the critic with the smallest value of S_{t+n}

    The TD error is that of q, as the actors compute it: a critic whose value is larger may err by
    more. Source: Fujimoto et al. 2018, section 4.2; for policies that ascend the minimum, Haarnoja
    et al. 2018.
    """

    def mean(z: tf.Tensor) -> tf.Tensor:
        return tf.reduce_min(one.mean(z), axis=-1)

    def td_loss(z_tm1: tf.Tensor, r_t: tf.Tensor, d_t: tf.Tensor, z_t: tf.Tensor) -> TDLoss:
        check_shapes(z_tm1.shape, z_t=z_t)
        smallest = tf.gather(z_t, tf.argmin(one.mean(z_t), axis=1), batch_dims=1)
        each = [one.td_loss(z, r_t, d_t, smallest) for z in tf.unstack(z_tm1, axis=1)]
        losses, td_errors = zip(*each, strict=True)
        # All critics share the target G, so the largest G - q_k is that of the smallest q_k.
        return TDLoss(tf.add_n(losses), tf.reduce_max(td_errors, axis=0))

    return ReturnDistribution((num_critics, *one.shape), mean, td_loss)


def _make_distribution_of_one(config: ApexDPGConfig) -> ReturnDistribution:
    if config.critic == "quantile":
        return quantiles(config.num_atoms)
    if config.critic == "categorical":
        return categorical(config.num_atoms, config.min_return, config.max_return)
    return expected_value()


def _make_torso(
    config: ApexDPGConfig,
    network: str,
    spec: EnvironmentSpec,
    torso_fn: TorsoFn | None,
    scope: str,
) -> tuple[snt.Module, Sequence[int]]:
    """Make the torso of 'policy' or 'critic', behind the normalization if there is one.

    Images, also among the parts of a Dict, first pass convolutions. Names of variables begin with
    `scope`.

    Returns:
      The torso, and the units of the hidden layers that are not part of it.
    """
    field, observations = f"{network}_torso", zero_observations(spec)
    name, sizes = getattr(config, field), getattr(config, f"{network}_hidden_sizes")
    is_own = is_own_torso(name, torso_fn)
    num_in_torso = 0 if name == "none" and not is_own else 1
    with tf.name_scope(scope):
        layers = []
        if config.normalize_observations:
            layers.append(RunningNormalization(spec.observations.shape, name="normalization"))
            observations = layers[0](observations)
        if is_own:
            args = name, f"agent.{field}", torso_fn, spec, config, observations
            return snt.Sequential([*layers, make_own_torso(*args)]), sizes[num_in_torso:]
        require_torso(name, f"agent.{field}", TORSOS)
        if convolutions := fitting_convolutions(spec):
            layers.append(PartsTorso(convolutions, (), spec, name="torso"))
        torso = VectorTorso(
            sizes[:num_in_torso],
            spec,
            activation=tf.tanh,
            layer_norm=config.layer_norm,
            name="torso",
        )
        return snt.Sequential([*layers, torso]), sizes[num_in_torso:]


def _make_hidden_layers(sizes: Sequence[int], layer_norm: bool) -> snt.Sequential:
    """Make layers with ReLUs, the last of which is `hidden`."""
    layers = list[Callable[[tf.Tensor], tf.Tensor]]()
    for i, size in enumerate(sizes, 1):
        name = "hidden" if i == len(sizes) else f"hidden_{i}"
        layers.append(snt.Linear(size, name=name))
        if layer_norm:
            layers.append(snt.LayerNorm(-1, True, True, name=f"{name}_layer_norm"))
        layers.append(tf.nn.relu)
    return snt.Sequential(layers)


def _make_output_layer(size: int) -> snt.Linear:
    return snt.Linear(size, w_init=_OUTPUT_INITIALIZER, name="output")
