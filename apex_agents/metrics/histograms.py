"""Histograms with the same bins in all runs, so that they can be compared.

Although sampling prefers high priorities, samples also show what the replay holds: a transition
that was sampled with probability P stands for 1 / P transitions.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

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
