"""Histograms of sampled transitions, with the same bins in all runs, so that they can be compared.

Although sampling prefers high priorities, samples also show what the replay holds: a transition
that was sampled with probability P stands for 1 / P transitions.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # Figures need the bins, but no TensorFlow.
    from apex_agents.learning.learner import SampledBatch

BINS_PER_DECADE = 4

# From the smallest priority to more learner steps than any run does; 0 has a separate bin.
_EXPONENTS = np.arange(-6 * BINS_PER_DECADE, 10 * BINS_PER_DECADE) / BINS_PER_DECADE
_BIN_EDGES = np.concatenate([[0.0], 10.0**_EXPONENTS, [np.inf]])


class Bin(NamedTuple):
    """One bin of a histogram; its fields are columns that `docs/reference/logs.md` explains."""

    lower: float
    upper: float
    sampled_share: float
    replay_share: float


def make_histogram(values: np.ndarray, weights: np.ndarray) -> Iterator[Bin]:
    """Yield the bins that are not empty.

    Args:
      values: a quantity of N sampled transitions, `[N]`; values that are negative or not finite are
        in no bin.
      weights: number of transitions of the replay for which each of them stands, `[N]`.
    """
    index = np.digitize(values, _BIN_EDGES)
    num_bins = len(_BIN_EDGES) + 1
    sampled = np.bincount(index, minlength=num_bins) / len(values)
    replay = np.bincount(index, weights, minlength=num_bins) / weights.sum()
    for i in np.flatnonzero(sampled[1:-1]) + 1:
        yield Bin(_BIN_EDGES[i - 1], _BIN_EDGES[i], sampled[i], replay[i])


class SampledTransitions(NamedTuple):
    """Transitions of the newest batches, `[N]` each.

    Attributes:
      priority: priority in the replay when the transition was sampled.
      td_error: `|td error|`, the new priority.
      age_steps: learner steps since the parameters with which the action was chosen.
      times_sampled: number of times that the transition has been sampled by then.
      weight: 1 / (number of transitions in the replay * probability of being sampled), whose mean
        over many samples is 1.
    """

    priority: np.ndarray
    td_error: np.ndarray
    age_steps: np.ndarray
    times_sampled: np.ndarray
    weight: np.ndarray


def read_samples(batches: Sequence["SampledBatch"]) -> SampledTransitions:
    """Return the transitions of batches, of which there has to be at least one."""
    columns = zip(*map(_read_batch, batches), strict=True)
    return SampledTransitions(*[np.concatenate(column) for column in columns])


def _read_batch(batch: "SampledBatch") -> SampledTransitions:
    probability = np.asarray(batch.info.probability, np.float64)
    return SampledTransitions(
        priority=np.asarray(batch.info.priority),
        td_error=np.asarray(batch.td_error),
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        age_steps=np.maximum(batch.learner_steps - np.asarray(batch.acted_with), 0),
        times_sampled=np.asarray(batch.info.times_sampled),
        weight=1 / (np.asarray(batch.info.table_size) * probability),
    )
