"""The figure of what is in the replay, and what the learner samples of it."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from apex_agents.plotting import legends, style
from apex_agents.plotting.curve_figures import make_title
from apex_agents.plotting.distributions import (
    BINS_PER_DECADE,
    Distribution,
    read_distribution,
)
from apex_agents.plotting.run_groups import RunGroup

_QUANTITIES = {"priority": "priority", "age_steps": "age (learner steps)"}
_MAX_TICKS = 6


@style.styled
def draw_priorities(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw how priorities and ages are distributed, at the end and over time; of one run only.

    Args:
      groups: of runs.

    Returns:
      The figure; None if there are several runs, or no histograms.
    """
    if [len(group.runs) for group in groups] != [1]:
        return None
    (columns,) = groups[0].read_columns("learner_histograms")
    found = [(label, read_distribution(columns, name)) for name, label in _QUANTITIES.items()]
    rows = [(label, distribution) for label, distribution in found if distribution is not None]
    if not rows:
        return None
    figure, panels = style.new_figure(make_title(groups), len(rows), 2, 0.9 + 2.2 * len(rows))
    for (label, distribution), newest, history in zip(rows, panels[::2], panels[1::2], strict=True):
        _draw_newest(newest, distribution)
        _draw_history(history, distribution)
        newest.set_xlabel(label)
        history.set_ylabel(label)
    replay = Patch(**style.AREA, label="transitions in the replay")
    legends.add_legend(
        figure, [replay, Patch(**style.OUTLINE, label="transitions sampled from it")]
    )
    return figure


def _draw_newest(axes: Axes, distribution: Distribution) -> None:
    """Draw the newest histogram, of the replay and of what was sampled from it."""
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
    darkest = shares[:, len(steps) // 2 :].max()  # In the beginning all may be in one bin.
    mesh = axes.pcolormesh(
        np.concatenate([ends[:1], middles, ends[1:]]),
        np.arange(distribution.replay.shape[1] + 1),
        shares,
        cmap="Blues",
        vmin=0,
        vmax=darkest,
        rasterized=True,  # Thousands of squares in an .svg.
    )
    axes.grid(False)
    axes.set_xlim(left=0)
    axes.set_xlabel("learner steps")
    style.show_as_counts(axes.xaxis)
    _label_bins(axes.yaxis, distribution)
    extend = "max" if shares.max() > darkest else "neither"
    label = "share of the replay (%)"
    axes.figure.colorbar(mesh, ax=axes, label=label, extend=extend)


def _label_bins(axis: Axis, distribution: Distribution) -> None:
    """Label an axis on which every bin has the width 1 with the powers of 10, and 0."""
    num_bins, first = distribution.replay.shape[1], distribution.first_bin
    lowest = math.ceil((first + distribution.has_zero) / BINS_PER_DECADE)
    highest = (first + num_bins) // BINS_PER_DECADE
    step = max(math.ceil((highest + 1 - lowest) / _MAX_TICKS), 1)
    ticks: dict[float, str] = {
        BINS_PER_DECADE * exponent - first: style.format_count(10.0**exponent)
        for exponent in range(lowest, highest + 1, step)
    }
    if distribution.has_zero:
        ticks[0.5] = "0"  # In the middle of its bin.
    axis.set_ticks(list(ticks), list(ticks.values()))
