"""The figure of priorities and ages in the replay, and of what the learner samples from it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from apex_agents.metrics import columns
from apex_agents.metrics.histograms import BINS_PER_DECADE
from apex_agents.plotting import style
from apex_agents.plotting.curve_figures import make_title
from apex_agents.plotting.curves import has_numbers, is_drawable, is_kept
from apex_agents.plotting.run_groups import Columns, RunGroup

# Values of `columns.QUANTITY`.
_QUANTITIES = {"priority": "priority", "age_steps": "age (learner steps)"}
_MAX_TICKS = 6

# The shares of a histogram add up to 1, unless some of its rows are missing.
_LEAST_SUM = 0.99
_MAX_HISTOGRAMS = 300


class Distribution(NamedTuple):
    """Histograms of one quantity at H times with B bins each."""

    learner_steps: np.ndarray  # [H], increasing.
    first_bin: int  # Bin b begins at 10 ** ((first_bin + b) / BINS_PER_DECADE).
    has_zero: bool  # Whether bin 0 begins at 0 instead.
    sampled: np.ndarray  # [H, B], shares of the sampled transitions.
    replay: np.ndarray  # [H, B], shares of the transitions in the replay.


@style.styled
def draw_priorities(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the newest distributions of priority and age, and their history, of a single run.

    Returns None for several runs, or without histograms.
    """
    if [len(group.runs) for group in groups] != [1]:
        return None
    (table,) = groups[0].read_columns(columns.LEARNER_HISTOGRAMS)
    found = {label: read_distribution(table, name) for name, label in _QUANTITIES.items()}
    rows = [(label, distribution) for label, distribution in found.items() if distribution]
    if not rows:
        return None
    figure, panels = style.new_figure(make_title(groups), len(rows), 2, 0.9 + 2.2 * len(rows))
    for (label, distribution), newest, history in zip(rows, panels[::2], panels[1::2], strict=True):
        _draw_newest(newest, distribution)
        _draw_history(history, distribution)
        newest.set_xlabel(label)
        history.set_ylabel(label)
    replay = Patch(**style.AREA, label="transitions in the replay")
    sampled = Patch(**style.OUTLINE, label="transitions sampled from it")
    style.add_legend(figure, [replay, sampled])
    return figure


def read_distribution(table: Columns, quantity: str) -> Distribution | None:
    """Read the histograms of 'priority' or 'age_steps' from `logs/learner_histograms.csv`.

    Left out are incomplete histograms, those that a resumed learner overwrote, and, if there are
    very many, some of the others, never the newest. Returns None if no histogram remains.
    """
    shares_of = (columns.SAMPLED_SHARE, columns.REPLAY_SHARE)
    numbers = (columns.LEARNER_STEPS, columns.LOWER, *shares_of)
    if columns.QUANTITY not in table or not has_numbers(table, *numbers):
        return None
    rows = table[columns.QUANTITY] == quantity
    for name in numbers:
        rows &= is_drawable(table[name])
    if not rows.any():
        return None
    steps, lower = table[columns.LEARNER_STEPS][rows], table[columns.LOWER][rows]
    begins = np.diff(steps, prepend=np.nan) != 0
    bins = _number_bins(lower)
    shares = np.zeros([2, begins.sum(), np.ptp(bins) + 1])
    place = (np.cumsum(begins) - 1, bins - bins.min())
    for share, name in zip(shares, shares_of, strict=True):
        np.add.at(share, place, table[name][rows])
    sampled, replay = shares
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
    """Number bins by their lower ends, `[R]`; a bin from 0 gets the number below all others."""
    is_power = lower > 0
    exponents = np.log10(lower, out=np.zeros_like(lower), where=is_power)
    bins = (BINS_PER_DECADE * exponents).round().astype(int)
    bins[~is_power] = bins[is_power].min() - 1 if is_power.any() else 0
    return bins


def _draw_newest(axes: Axes, distribution: Distribution) -> None:
    """Draw the newest histograms of the replay and of the sampled transitions."""
    edges = np.arange(distribution.replay.shape[1] + 1)
    for shares, look in ((distribution.replay, style.AREA), (distribution.sampled, style.OUTLINE)):
        axes.stairs(100 * shares[-1], edges, **look)
    axes.set_ylabel("share (%)")
    style.show_as_counts(axes.yaxis)
    axes.set_title(f"at learner step {distribution.learner_steps[-1]:,.0f}")
    _label_bins(axes.xaxis, distribution)


def _draw_history(axes: Axes, distribution: Distribution) -> None:
    """Draw the histograms of the replay side by side, their shares as shades."""
    steps = distribution.learner_steps
    ends = (steps[0], steps[-1]) if len(steps) > 1 else (steps[0], steps[0] + 1)
    middles = (steps[:-1] + steps[1:]) / 2
    shares = 100 * distribution.replay.T
    # The first half does not count: all transitions may be in one bin at the beginning.
    darkest = shares[:, len(steps) // 2 :].max()
    x, y = np.concatenate([ends[:1], middles, ends[1:]]), np.arange(len(shares) + 1)
    # An .svg would hold thousands of squares.
    mesh = axes.pcolormesh(x, y, shares, cmap="Blues", vmin=0, vmax=darkest, rasterized=True)
    axes.grid(False)
    axes.set_xlim(left=0)
    axes.set_xlabel("learner steps")
    style.show_as_counts(axes.xaxis)
    _label_bins(axes.yaxis, distribution)
    extend = "max" if shares.max() > darkest else "neither"
    axes.figure.colorbar(mesh, ax=axes, label="share of the replay (%)", extend=extend)


def _label_bins(axis: Axis, distribution: Distribution) -> None:
    """Label an axis whose bins have width 1 with powers of 10, and 0."""
    num_bins, first = distribution.replay.shape[1], distribution.first_bin
    lowest = math.ceil((first + distribution.has_zero) / BINS_PER_DECADE)
    highest = (first + num_bins) // BINS_PER_DECADE
    step = max(math.ceil((highest + 1 - lowest) / _MAX_TICKS), 1)
    count = style.CountFormatter(sep="").format_data
    ticks: dict[float, str] = {
        BINS_PER_DECADE * exponent - first: count(10.0**exponent)
        for exponent in range(lowest, highest + 1, step)
    }
    if distribution.has_zero:
        ticks[0.5] = "0"  # In the middle of its bin.
    axis.set_ticks(list(ticks), list(ticks.values()))
