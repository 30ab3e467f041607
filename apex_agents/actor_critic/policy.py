"""The stochastic policy of an actor-critic."""

from collections.abc import Mapping

import dm_env
import numpy as np

from apex_agents.acting.policy import CompiledFunction, PolicyOutput
from apex_agents.actor_critic.networks import ActorCriticNetwork


class SoftmaxPolicy:
    """Samples actions with the probabilities of the network, or takes the most likely ones.

    `q_taken` and `value` of its `PolicyOutput` are both v(s): the network has no action values.

    Attributes:
      network: policy and value.
      variables: `{'network': ...}`, variables of the network.
      exploration: nothing, since how much it explores is learned.
    """

    def __init__(self, network: ActorCriticNetwork, seed: int, is_greedy: bool = False):
        """Wrap a network whose variables exist."""
        self.network = network
        self.variables = {"network": network.variables}
        self.exploration: Mapping[str, np.ndarray | float] = {}
        self._evaluate = CompiledFunction(network)
        self._random = np.random.default_rng(seed)
        self._is_greedy = is_greedy

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        logits, value = (tensor.numpy() for tensor in self._evaluate(timestep.observation))
        if not self._is_greedy:
            # The greatest of logits with Gumbel noise has the probabilities of the softmax.
            logits = logits + self._random.gumbel(size=logits.shape)
        action = logits.argmax(axis=-1).astype(np.int32)
        return PolicyOutput(action=action, q_taken=value, value=value)
