"""What `logs/learner_histograms.csv` tells of one quantity, as arrays."""

from typing import NamedTuple

import numpy as np

from apex_agents.plotting.curves import has_numbers, is_drawable, is_kept
from apex_agents.plotting.run_groups import Columns

# Bins of `running.histograms` per factor of 10; the one from 0 on is no power of 10.
BINS_PER_DECADE = 4

# Shares of all bins of a histogram add up to 1, unless some of its rows are missing.
_LEAST_SUM = 0.99
_MAX_HISTOGRAMS = 300


class Distribution(NamedTuple):
    """Histograms of one quantity at H times, with E bins each.

    Attributes:
      learner_steps: `[H]`, rising.
      first_bin: the first bin begins at `10 ** (first_bin / BINS_PER_DECADE)`, the others follow.
      has_zero: whether the first bin is that from 0 on instead, directly below the second one.
      sampled: `[H, E]`, share of the sampled transitions.
      replay: `[H, E]`, share of the replay's transitions.
    """

    learner_steps: np.ndarray
    first_bin: int
    has_zero: bool
    sampled: np.ndarray
    replay: np.ndarray


def read_distribution(columns: Columns, quantity: str) -> Distribution | None:
    """Read the histograms of one quantity.

    Histograms that are incomplete are left out, and those that later ones take back: a learner that
    goes on from a checkpoint does some steps a second time. If there are very many, it is some of
    them, and always the newest.

    Args:
      columns: of `learner_histograms`.
      quantity: 'priority', 'age_steps', ...

    Returns:
      The histograms; None if there is none.
    """
    numbers = ("learner_steps", "lower", "sampled_share", "replay_share")
    if "quantity" not in columns or not has_numbers(columns, *numbers):
        return None
    rows = columns["quantity"] == quantity
    for name in numbers:
        rows &= is_drawable(columns[name])
    steps, lower = columns["learner_steps"][rows], columns["lower"][rows]
    if not len(steps):
        return None
    begins = np.diff(steps, prepend=np.nan) != 0
    histogram, bins = np.cumsum(begins) - 1, _number_bins(lower)
    shape = (begins.sum(), np.ptp(bins) + 1)
    place = (histogram, bins - bins.min())
    sampled, replay = np.zeros(shape), np.zeros(shape)
    np.add.at(sampled, place, columns["sampled_share"][rows])
    np.add.at(replay, place, columns["replay_share"][rows])
    steps = steps[begins]

    shown = np.flatnonzero(sampled.sum(axis=1) >= _LEAST_SUM)
    shown = shown[is_kept(steps[shown])]
    if not len(shown):
        return None
    count = min(len(shown), _MAX_HISTOGRAMS)
    shown = shown[np.linspace(0, len(shown) - 1, count).round().astype(int)]
    has_zero = not (lower > 0).all()
    return Distribution(steps[shown], int(bins.min()), has_zero, sampled[shown], replay[shown])


def _number_bins(lower: np.ndarray) -> np.ndarray:
    """Number bins by where they begin, `[R]`; that from 0 on goes directly below the others."""
    is_power = lower > 0
    exponents = np.log10(lower, out=np.zeros_like(lower), where=is_power)
    bins = (BINS_PER_DECADE * exponents).round().astype(int)
    bins[~is_power] = bins[is_power].min() - 1 if is_power.any() else 0
    return bins
