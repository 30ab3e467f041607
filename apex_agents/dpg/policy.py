"""The policy of Ape-X DPG: the policy network's action with normal noise on it."""

import numpy as np
import tensorflow as tf

from apex_agents.acting.policy import CompiledFunction, PolicyOutput
from apex_agents.dpg.networks import DPGNetworks


class GaussianNoisePolicy:
    """Acts near pi(s) (Horgan et al. 2018, appendix D).

      a = clip(pi(s) + noise_scale * N(0, 1), -1, 1)

    Attributes:
      variables: `{'policy': ..., 'critic': ...}`, variables of the networks.
      exploration: `{'noise_scale': ...}`, standard deviation of the noise in every environment.
    """

    def __init__(self, networks: DPGNetworks, noise_scale: float, seed: int):
        """Wrap networks whose variables exist; `seed` is that of the noise."""
        self.variables = {name: net.variables for name, net in networks._asdict().items()}
        self.exploration = {"noise_scale": noise_scale}
        policy, critic = networks
        random = tf.random.Generator.from_seed(seed)

        def evaluate(observation: tf.Tensor) -> PolicyOutput:
            best = policy(observation)
            noise = random.normal(tf.shape(best), stddev=noise_scale)
            action = tf.clip_by_value(best + noise, -1.0, 1.0)
            return PolicyOutput(action, critic(observation, action), critic(observation, best))

        self._evaluate = CompiledFunction(evaluate)

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        output = self._evaluate(observation)
        return PolicyOutput(*[tensor.numpy() for tensor in output])
