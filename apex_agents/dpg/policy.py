"""The policy of Ape-X DPG: the policy network's action with normal noise on it."""

import numpy as np
import sonnet as snt
import tensorflow as tf

from apex_agents.acting.policy import CompiledFunction, PolicyOutput


class GaussianNoisePolicy:
    """Acts near pi(s) (Horgan et al. 2018, appendix D).

      a = clip(pi(s) + noise_scale * N(0, 1), -1, 1)

    Attributes:
      variables: `{'policy': ..., 'critic': ...}`, the networks' variables.
      networks: the networks themselves, under the same names.
      exploration: `{'noise_scale': ...}`, standard deviation of the noise on each element of the
        action, in every environment.
    """

    def __init__(self, policy: snt.Module, critic: snt.Module, noise_scale: float, seed: int):
        """Wrap two networks whose variables exist.

        Args:
          policy: pi, from observations `[E, ...]` to actions `[E, D]` in [-1, 1].
          critic: q, from observations `[E, ...]` and actions `[E, D]` to `[E]`.
          noise_scale: 0 for no noise.
          seed: of the noise.
        """
        self.variables = {"policy": policy.variables, "critic": critic.variables}
        self.networks = {"policy": policy, "critic": critic}
        self.exploration = {"noise_scale": noise_scale}
        random = tf.random.Generator.from_seed(seed)

        def evaluate(observation: tf.Tensor) -> PolicyOutput:
            best = policy(observation)
            noise = random.normal(tf.shape(best), stddev=noise_scale)
            action = tf.clip_by_value(best + noise, -1.0, 1.0)
            return PolicyOutput(action, critic(observation, action), critic(observation, best))

        self._evaluate = CompiledFunction(evaluate)

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        """Choose an action in every environment; see `PolicyOutput` for shapes."""
        output = self._evaluate(observation)
        return PolicyOutput(*[tensor.numpy() for tensor in output])
