"""What one item of the transition table looks like, for those who write it and those who read it.

An item is `observation`, `outcome`, `next_observation`. The outcome is one float32 vector
`[action..., R, D]`: every column of an item costs memory and time of its own in Reverb, and float32
holds any discrete action exactly.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Transition(NamedTuple):
    """A batch of n-step transitions.

    Attributes:
      observation: `[B, ...]`, S_t.
      action: `[B]` int32 or `[B, D]`, A_t.
      n_step_return: `[B]`, R = sum_{k<n} (prod_{j<k} gamma d_{t+1+j}) r_{t+1+k}.
      n_step_discount: `[B]`, D = prod_{k<n} gamma d_{t+1+k}.
      next_observation: `[B, ...]`, S_{t+n}, or the last observation of a shorter transition.
    """

    observation: tf.Tensor
    action: tf.Tensor
    n_step_return: tf.Tensor
    n_step_discount: tf.Tensor
    next_observation: tf.Tensor


def item_signature(observation_spec: Any, action_spec: Any) -> dict[str, tf.TensorSpec]:
    """Describe one item.

    Args:
      observation_spec: dm_env spec of one observation, stacked frames included.
      action_spec: dm_env spec of one action.
    """
    observation = tf.TensorSpec(observation_spec.shape, observation_spec.dtype)
    outcome_size = int(np.prod(action_spec.shape, dtype=int)) + 2
    return {
        "observation": observation,
        "outcome": tf.TensorSpec([outcome_size], tf.float32),
        "next_observation": observation,
    }


def pack_outcome(action: np.ndarray, n_step_return: float, n_step_discount: float) -> np.ndarray:
    """Return the vector `[action..., R, D]`."""
    return np.append(np.ravel(action), (n_step_return, n_step_discount)).astype(np.float32)


def unpack_item(item: Mapping[str, tf.Tensor], action_spec: Any) -> Transition:
    """Turn a batch of items into a batch of transitions.

    Args:
      item: `observation` `[B, ...]`, `outcome` `[B, D + 2]`, `next_observation` `[B, ...]`.
      action_spec: dm_env spec of one action.
    """
    outcome = item["outcome"]
    action = tf.reshape(outcome[:, :-2], [-1, *action_spec.shape])
    return Transition(
        observation=item["observation"],
        action=tf.cast(action, action_spec.dtype),
        n_step_return=outcome[:, -2],
        n_step_discount=outcome[:, -1],
        next_observation=item["next_observation"],
    )
