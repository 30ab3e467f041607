"""Outputs of networks for legal actions alone, where environments say which these are.

Masks are a part of observations (`environments/masks.py`). A network puts `ILLEGAL` in the place of
what it gives out for other actions, so that they are never the greatest, and random actions
are drawn from the legal ones.
"""

from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec, has_mask, without_mask

# The value, or the logit, of an action that is not legal: below any that is learned, and finite,
# for sums of products with 0.
ILLEGAL = -1e30


def mask_values(values: tf.Tensor, observations: tf.Tensor, spec: EnvironmentSpec) -> tf.Tensor:
    """Put `ILLEGAL` in the place of what a network gives out for actions that are not legal.

    Where no action is legal, as in the last state of an episode, all are left as they are.

    Args:
      values: `[B, A, ...]`.
      observations: `[B, N + A]`, with the mask behind them, or `[B, ...]` without one.
      spec: specification of one environment, which says whether there is a mask.
    """
    if not has_mask(spec):
        return values
    legal = observations[:, -spec.actions.num_values :] > 0
    legal = tf.logical_or(legal, ~tf.reduce_any(legal, axis=1, keepdims=True))
    shape = [-1, spec.actions.num_values, *[1] * (values.shape.rank - 2)]
    return tf.where(tf.reshape(legal, shape), values, ILLEGAL)


def is_legal(values: Any) -> Any:
    """Return which values of an array or a tensor `mask_values` has left, means included.

    The mean of many `ILLEGAL`, as of quantiles, is a little above or below it in float32.
    """
    return values > ILLEGAL / 2


def mean_of_legal(values: tf.Tensor) -> tf.Tensor:
    """Return the mean of values `[..., A, ...]` without those that `mask_values` has replaced."""
    legal = is_legal(values)
    return tf.reduce_sum(tf.where(legal, values, 0.0)) / tf.reduce_sum(tf.cast(legal, tf.float32))


def drop_masks(observations: tf.Tensor, spec: EnvironmentSpec) -> tf.Tensor:
    """Return observations without the masks behind them: `[B, ...]` of `[B, N + A]`."""
    shape = without_mask(spec).observations.shape
    return tf.reshape(observations[:, : -spec.actions.num_values], [-1, *shape])


class LegalActions(snt.Module):
    """Layers that give out `ILLEGAL` for actions that are not legal; see `mask_values`."""

    def __init__(self, layers: snt.Module, spec: EnvironmentSpec):
        super().__init__()
        self._layers, self._spec = layers, spec

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return mask_values(self._layers(observation), observation, self._spec)
