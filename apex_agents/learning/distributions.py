"""Distributions of the return that a network may put in the place of an action value."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from apex_agents.learning.losses import TDLoss, quantile_td_loss, td_loss


class ReturnDistribution(NamedTuple):
    """Output distribution of a network for one action: its shape, mean and loss.

    Attributes:
      shape: shape of the output for one action: `()` for a number, `(N,)` for a
        distribution; of K critics, with a first axis of K.
      mean: function from `[..., *shape]` to the action values, `[...]`.
      td_loss: loss towards a bootstrapped return, of the arguments of `losses.td_loss`, where
        values are `[B, *shape]`. Its `td_error` is that of the action values, and thus on one scale
        with the priorities of the actors.
    """

    shape: tuple[int, ...]
    mean: Callable[[tf.Tensor], tf.Tensor]
    td_loss: Callable[..., TDLoss]


def expected_value() -> ReturnDistribution:
    """Make the paper's output: the action value alone, learned by its squared TD error."""
    return ReturnDistribution((), tf.identity, td_loss)


def quantiles(num_quantiles: int) -> ReturnDistribution:
    """Make a distribution of quantiles at (i + 0.5) / N (Dabney et al. 2018, section 4)."""
    mean = functools.partial(tf.reduce_mean, axis=-1)
    return ReturnDistribution((num_quantiles,), mean, quantile_td_loss)
