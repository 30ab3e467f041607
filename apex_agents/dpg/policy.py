"""The policy of Ape-X DPG: the policy network's action with normal noise on it."""

from collections.abc import Sequence

import dm_env
import numpy as np
import tensorflow as tf

from apex_agents.acting.policy import CompiledFunction, PolicyOutput
from apex_agents.dpg.config import NoiseConfig
from apex_agents.dpg.networks import DPGNetworks


def noise_ladder(config: NoiseConfig, num_envs: int) -> np.ndarray:
    """Return the standard deviation of the noise in each environment of all actors.

      noise_scale_i = noise_scale + i / (N - 1) * (min_noise_scale - noise_scale),  i = 0 .. N - 1

    Source: Tassa et al. 2018, section 5; a single environment gets `noise_scale`.

    Args:
      config: ends of the ladder.
      num_envs: N, environments of all actors together.

    Returns:
      `[N]` float64, not increasing.
    """
    least = config.noise_scale if config.min_noise_scale is None else config.min_noise_scale
    return np.linspace(config.noise_scale, least, num_envs)


class GaussianNoisePolicy:
    """Acts near pi(s) (Horgan et al. 2018, appendix D).

      a = clip(pi(s) + noise_scale_i * N(0, 1), -1, 1)  in environment i

    Attributes:
      variables: `{'policy': ..., 'critic': ...}`, variables of the networks.
      exploration: `{'noise_scale': [E]}`, standard deviation of the noise in each environment.
    """

    def __init__(
        self, networks: DPGNetworks, noise_scales: Sequence[float] | np.ndarray, seed: int
    ):
        """Wrap networks whose variables exist; `noise_scales` are one per environment, `[E]`."""
        self.variables = {name: net.variables for name, net in networks._asdict().items()}
        self.exploration = {"noise_scale": np.asarray(noise_scales)}
        stddev = tf.constant(self.exploration["noise_scale"][:, np.newaxis], tf.float32)
        policy, critic = networks
        random = tf.random.Generator.from_seed(seed)

        def evaluate(observation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            best = policy(observation)
            noise = stddev * random.normal(tf.shape(best))
            action = tf.clip_by_value(best + noise, -1.0, 1.0)
            return action, critic(observation, action), critic(observation, best)

        self._evaluate = CompiledFunction(evaluate)

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        output = self._evaluate(timestep.observation)
        return PolicyOutput(*[tensor.numpy() for tensor in output])
