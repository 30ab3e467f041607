"""Figures of histograms: priorities and ages of transitions, and the staleness of gradients."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from apex_agents.metrics import columns
from apex_agents.metrics.histograms import BINS_PER_DECADE
from apex_agents.plotting import style
from apex_agents.plotting.curves import has_numbers, is_drawable, is_kept
from apex_agents.plotting.run_groups import Columns, RunGroup, make_title

# Values of `columns.QUANTITY`.
_QUANTITIES = {"priority": "priority", "age_steps": "age in learner steps"}
_SHARES = {"replay": "items in the replay", "sampled": "items sampled from it"}
_LOOKS = {"replay": style.AREA, "sampled": style.OUTLINE}
_BIN_WIDTH = 1 / BINS_PER_DECADE
# The shares of a histogram add up to 1, unless some of its rows are missing.
_LEAST_SUM = 0.99
_MAX_HISTOGRAMS = 300
_MAX_TICKS = 6


class Histograms(NamedTuple):
    """Histograms of one quantity, a row per bin that is not empty, `[R]` each."""

    learner_steps: np.ndarray  # Increasing; equal in the rows of one histogram.
    bins: np.ndarray  # log10 of a bin's lower end; the bin from 0 on is below all others.
    sampled: np.ndarray  # Share of the sampled transitions that is in the bin.
    replay: np.ndarray  # Share of the transitions in the replay.
    is_zero: np.ndarray  # Whether the bin begins at 0.


@style.styled
def draw_priorities(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the newest distributions of priority and age, and their history, of a single run.

    Returns None for several runs, or without histograms.
    """
    return _draw(groups, _QUANTITIES, _SHARES, "the replay")


@style.styled
def draw_staleness(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw how old the gradients of a single run were when they were applied, newest and history.

    Returns None for several runs, or without histograms.
    """
    quantities = {columns.STALENESS_STEPS: "staleness in learner steps"}
    return _draw(groups, quantities, {"replay": "applied gradients"}, "the gradients")


def _draw(
    groups: Sequence[RunGroup], quantities: Mapping[str, str], shares: Mapping[str, str], whole: str
) -> Figure | None:
    """Draw two panels of each quantity, whose histograms are shares of a whole."""
    if [len(group.runs) for group in groups] != [1]:
        return None
    # Of several learners, the first one writes what they sample.
    names = map(columns.histogram_file, (columns.LEARNER, columns.learner_file(0)))
    tables = [table for name in names for table in groups[0].read_columns(name)]
    rows = []
    for quantity, label in quantities.items():
        found = [read_histograms(table, quantity) for table in tables]
        if written := [histograms for histograms in found if histograms is not None]:
            # A run that was resumed with another number of learners has two: the newer one.
            rows.append((label, max(written, key=lambda one: one.learner_steps[-1])))
    if not rows:
        return None
    figure, panels = style.new_figure(make_title(groups), len(rows), 2, 0.9 + 2.2 * len(rows))
    for (label, histograms), newest, history in zip(rows, panels[::2], panels[1::2], strict=True):
        edges = np.arange(
            histograms.bins.min(), histograms.bins.max() + 1.5 * _BIN_WIDTH, _BIN_WIDTH
        )
        _draw_newest(newest, histograms, edges, shares)
        _draw_history(history, histograms, edges, whole)
        _label_bins(newest.xaxis, histograms, f"{label} (log)")
        _label_bins(history.yaxis, histograms, f"{label} (log)")
    style.add_legend(figure)
    return figure


def read_histograms(table: Columns, quantity: str) -> Histograms | None:
    """Read the histograms of a quantity, such as 'priority', from a learner's file of them.

    Left out are incomplete histograms, those that a resumed learner overwrote, and, if there are
    very many, some of the others, never the newest. Returns None if no histogram remains.
    """
    names = (columns.LEARNER_STEPS, columns.LOWER, columns.SAMPLED_SHARE, columns.REPLAY_SHARE)
    if columns.QUANTITY not in table or not has_numbers(table, *names):
        return None
    is_row = table[columns.QUANTITY] == quantity
    for name in names:
        is_row &= is_drawable(table[name])
    steps, lower, sampled, replay = (table[name][is_row] for name in names)
    number = np.cumsum(np.diff(steps, prepend=np.nan) != 0) - 1  # Each row's histogram.
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    complete = np.flatnonzero(np.bincount(number, sampled) >= _LEAST_SUM)
    complete = complete[is_kept(steps[starts][complete])] if len(complete) else complete
    count = min(len(complete), _MAX_HISTOGRAMS)
    if not count:
        return None
    chosen = complete[np.linspace(0, len(complete) - 1, count).round().astype(int)]
    is_zero = lower <= 0
    bins = np.log10(lower, out=np.full_like(lower, np.inf), where=~is_zero)
    lowest = bins.min()
    bins[is_zero] = lowest - _BIN_WIDTH if np.isfinite(lowest) else 0.0
    bins = (bins / _BIN_WIDTH).round() * _BIN_WIDTH
    is_shown = np.isin(number, chosen)
    return Histograms(*(c[is_shown] for c in (steps, bins, sampled, replay, is_zero)))


def _draw_newest(
    axes: Axes, histograms: Histograms, edges: np.ndarray, shares: Mapping[str, str]
) -> None:
    """Draw the newest histograms, those of `shares`, by their labels."""
    newest = histograms.learner_steps == histograms.learner_steps[-1]
    middles = histograms.bins[newest] + _BIN_WIDTH / 2
    for name, label in shares.items():
        weights = 100 * getattr(histograms, name)[newest]
        axes.hist(middles, edges.tolist(), weights=weights, label=label, **_LOOKS[name])
    axes.set_ylabel("share (%)")
    style.show_as_counts(axes.yaxis)
    axes.set_title(f"at learner step {histograms.learner_steps[-1]:,.0f}")


def _draw_history(axes: Axes, histograms: Histograms, edges: np.ndarray, whole: str) -> None:
    """Draw the histograms side by side, their shares of a whole as shades."""
    steps = np.unique(histograms.learner_steps)
    middles = (steps[:-1] + steps[1:]) / 2
    ends = steps[-1:] if len(steps) > 1 else steps + 1
    shares, *_, mesh = axes.hist2d(
        histograms.learner_steps,
        histograms.bins + _BIN_WIDTH / 2,
        bins=[np.concatenate([steps[:1], middles, ends]), edges],
        weights=100 * histograms.replay,
        cmap="Blues",
        rasterized=True,  # An .svg would hold thousands of squares.
    )
    # The first half does not count: all transitions may be in one bin at the beginning.
    darkest = shares[len(steps) // 2 :].max()
    mesh.set_clim(0, darkest)
    axes.grid(False)
    axes.set_xlim(left=0)
    axes.set_xlabel("learner steps")
    style.show_as_counts(axes.xaxis)
    extend = "max" if shares.max() > darkest else "neither"
    axes.figure.colorbar(mesh, ax=axes, label=f"share of {whole} (%)", extend=extend)


def _label_bins(axis: Axis, histograms: Histograms, label: str) -> None:
    """Label powers of 10, and 0 in the middle of its bin."""
    bins = histograms.bins[~histograms.is_zero]
    lowest, highest = (
        (math.ceil(bins.min()), math.floor(bins.max() + _BIN_WIDTH)) if len(bins) else (0, -1)
    )
    step = max(math.ceil((highest + 1 - lowest) / _MAX_TICKS), 1)
    count = style.CountFormatter(sep="").format_data
    ticks = {float(e): count(10.0**e) for e in range(lowest, highest + 1, step)}
    if histograms.is_zero.any():
        ticks[histograms.bins.min() + _BIN_WIDTH / 2] = "0"
    axis.set_ticks(list(ticks), list(ticks.values()))
    axis.set_label_text(label)
