"""Dueling networks (Wang et al. 2016), for frames and for vectors."""

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

from apex_agents.dqn.config import ApexDQNConfig


class DuelingHead(snt.Module):
    """Value and advantage streams.

    q(s, a) = v(s) + adv(s, a) - mean_a' adv(s, a')

    Source: Wang et al. 2016, equation 9.
    """

    def __init__(self, hidden_size: int, num_actions: int, name: str | None = None):
        """Build both streams, one hidden layer of `hidden_size` units each."""
        super().__init__(name=name)
        self._value = snt.nets.MLP([hidden_size, 1])
        self._advantage = snt.nets.MLP([hidden_size, num_actions])

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Map features `[B, F]` to action values `[B, A]`."""
        # Both streams send gradients into the features: scaled down so that their sum has the size
        # of one (Wang et al. 2016, section 4.2).
        features = scale_gradient(features, 2**-0.5)
        advantage = self._advantage(features)
        centred = advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True)
        return self._value(features) + centred


class AtariTorso(snt.Module):
    """Three convolutions over stacked frames (Mnih et al. 2015)."""

    def __init__(self, name: str | None = None):
        """Build the layers: 32 8x8/4, 64 4x4/2, 64 3x3/1."""
        super().__init__(name=name)
        self._convolutions = [
            snt.Conv2D(32, 8, 4, padding="VALID"),
            snt.Conv2D(64, 4, 2, padding="VALID"),
            snt.Conv2D(64, 3, 1, padding="VALID"),
        ]

    def __call__(self, frames: tf.Tensor) -> tf.Tensor:
        """Map frames `[B, stack, 84, 84]` uint8 to features `[B, 3136]`."""
        features = tf.cast(tf.transpose(frames, [0, 2, 3, 1]), tf.float32) / 255.0
        for convolution in self._convolutions:
            features = tf.nn.relu(convolution(features))
        return snt.flatten(features)


class VectorTorso(snt.Module):
    """Fully connected layers over flat observations."""

    def __init__(self, hidden_sizes: Sequence[int], name: str | None = None):
        """Build the layers; all of them end in a ReLU."""
        super().__init__(name=name)
        self._mlp = snt.nets.MLP(hidden_sizes, activate_final=True)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Map observations `[B, ...]` to features `[B, F]`."""
        return self._mlp(snt.flatten(tf.cast(observation, tf.float32)))


def scale_gradient(tensor: tf.Tensor, scale: float) -> tf.Tensor:
    """Return `tensor` itself, with the gradients that flow back through it times `scale`."""
    return tensor * scale + tf.stop_gradient(tensor) * (1.0 - scale)


def make_network(config: ApexDQNConfig, num_actions: int) -> snt.Sequential:
    """Build the action-value network of a config.

    Args:
      config: which network, and its sizes.
      num_actions: A.

    Returns:
      A module from observations `[B, ...]` to action values `[B, A]`; its variables exist after
      the first call, or after `snt.build`.
    """
    torso = AtariTorso() if config.network == "atari" else VectorTorso(config.mlp_hidden_sizes)
    return snt.Sequential([torso, DuelingHead(config.stream_hidden_size, num_actions)])
