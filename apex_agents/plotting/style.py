"""Colours, lines, axes and legends of all figures; `figures.mplstyle` has fonts and sizes."""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

from apex_agents.plotting.curves import INTERVAL, Curve, aggregate, carry_forward

# Decorates functions that draw; the caller's settings of Matplotlib are neither read nor changed.
styled = matplotlib.style.context("apex_agents.plotting.figures", after_reset=True)

# The palette of Okabe and Ito for colour-blind readers, without its yellow, which is invisible on
# white. Line styles differ too, for prints in grey.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: Sequence[Any] = (
    "-",
    (0, (5, 1.5)),
    (0, (4, 1.2, 1, 1.2)),
    (0, (1, 1)),
    (0, (8, 1.2, 1, 1.2, 1, 1.2)),
    (0, (2.5, 2.5)),
)

# Looks of histograms, the outline in front of the area.
AREA: dict[str, Any] = {"histtype": "stepfilled", "color": "#9ecae1"}
OUTLINE: dict[str, Any] = {"histtype": "step", "color": "#D55E00", "linewidth": 1.6}
DOTS: dict[str, Any] = {
    "color": _COLORS[0],
    "linestyle": "",
    "marker": "o",
    "markeredgewidth": 0,
    "zorder": 1.5,  # Behind lines.
}
_GREY = "#666666"
_REFERENCE: dict[str, Any] = {"color": _GREY, "linewidth": 1.0, "linestyle": (0, (2, 2))}
_SINGLE_SEED: dict[str, Any] = {"linestyle": "-", "linewidth": 0.7, "alpha": 0.4, "zorder": 1.9}
# Lines of all colours, which the legend shows in grey.
_SINGLE_SEEDS = "single seeds"
# Seeds without a mean are solid, too: with the dashes of a setting they would look like its mean.
_LONE_SEED: dict[str, Any] = _SINGLE_SEED | {"linewidth": 1.0, "alpha": 0.9}
_GREY_SEED: dict[str, Any] = _SINGLE_SEED | {"color": _GREY}
_BAND: dict[str, Any] = {"alpha": 0.2, "linewidth": 0}
_STOPPED: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 4, "alpha": 0.8}

_WIDTH_INCHES = 8.0
PANELS_PER_ROW = 3
# Markers of more points than this would touch each other.
_MAX_MARKED_POINTS = 40
# A reference line may extend the y axis by this part of the range of the curves.
_REFERENCE_MARGIN = 0.5
# From this ratio on, a linear axis would show only the largest values.
_LOG_FROM_RATIO = 20.0
# Characters that fit beside each other at the font size of legends.
_CHARACTERS_OF_FIGURE = 112
_CHARACTERS_OF_HANDLE = 8
_LEGEND_LINE_INCHES = 0.18


def new_figure(title: str, rows: int, columns: int, height: float, **axes: Any) -> Any:
    """Make a figure as wide as a page and `height` inches high; `axes` are for `subplots`.

    Returns:
      The figure and a list of its panels, row by row.
    """
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False, **axes).flatten().tolist()


def new_panels(title: str, number: int, **axes: Any) -> Any:
    """Make a figure of several panels, three in a row; `axes` are for `subplots`."""
    rows, columns = math.ceil(number / PANELS_PER_ROW), min(number, PANELS_PER_ROW)
    figure, panels = new_figure(title, rows, columns, 0.9 + 2.2 * rows, **axes)
    for unused in panels[number:]:
        unused.set_visible(False)
    return figure, panels[:number]


def line_style(index: int, variant: int = 0) -> dict[str, Any]:
    """Return colour and dashes of a line; 42 of them differ, and 6 variants of each colour."""
    color, dashes = _COLORS[index % len(_COLORS)], _DASHES[(index + variant) % len(_DASHES)]
    return {"color": color, "linestyle": dashes}


def draw_line(axes: Axes, curve: Curve, label: str, band: str = "", **look: Any) -> None:
    """Draw a line, with markers if it has few points, and its band; labels are for the legend."""
    marker = "o" if len(curve.x) <= _MAX_MARKED_POINTS else ""
    # A point on an axis is shown as a whole.
    (line,) = axes.plot(curve.x, curve.y, marker=marker, clip_on=False, label=label or "_", **look)
    line.set_in_layout(len(curve.x) > 0)  # Without a point it would count as one at the corner.
    if (curve.upper > curve.lower).any():
        look = _BAND | {"color": look["color"]}
        axes.fill_between(curve.x, curve.lower, curve.upper, label=band or "_", **look)


def draw_seeds(
    axes: Axes,
    curves: Sequence[Curve],
    has_ended: Sequence[bool],
    label: str,
    look: Mapping[str, Any],
) -> None:
    """Draw the mean of several seeds with its interval, and a faint line for each of them.

    The lines of seeds that share no range, which have no mean, are not faint.

    Args:
      axes: panel to draw in.
      curves: one curve per run.
      has_ended: whether each run ended at its target; its last value then counts until the end of
        the longest one.
      label: label of the mean.
      look: colour and dashes of the mean.
    """
    end = max(curve.x[-1] for curve in curves)
    is_stopped = [
        ended and curve.x[-1] < end for curve, ended in zip(curves, has_ended, strict=True)
    ]
    seeds = [
        carry_forward(curve, end) if stopped else curve
        for curve, stopped in zip(curves, is_stopped, strict=True)
    ]
    mean = aggregate(seeds)
    draw_line(axes, mean, label, INTERVAL, **look)
    single = {**look, **(_SINGLE_SEED if len(mean.x) else _LONE_SEED)}
    for seed in seeds:
        marker = "." if len(seed.x) == 1 else ""  # A line needs two points.
        axes.plot(seed.x, seed.y, marker=marker, label=_SINGLE_SEEDS, **single)
    stops = [(curve.x[-1], curve.y[-1]) for curve in compress(curves, is_stopped)]
    if stops:
        label = "seed ended at its target, carried forward"
        axes.plot(*zip(*stops, strict=True), color=look["color"], label=label, **_STOPPED)


def draw_reference(axes: Axes, value: float, label: str) -> None:
    """Draw a horizontal line, unless it is so far away that it would flatten the curves."""
    low, high = axes.get_ylim()
    margin = _REFERENCE_MARGIN * (high - low)
    if low - margin <= value <= high + margin:
        axes.axhline(value, label=label, **_REFERENCE)
        if not axes.get_autoscaley_on():  # The ends of the axis were set.
            axes.set_ylim(min(low, value), max(high, 1.04 * value))


def scale_axes(axes: Axes, is_time: bool, y_axis: str) -> None:
    """Let the x axis begin at 0, scale the y axis, and label ticks as 10K or 1.5M.

    Args:
      axes: panel in which everything is drawn already.
      is_time: whether the x axis, which has its label already, is in seconds.
      y_axis: 'zero' to begin at 0; 'log' for a logarithmic axis if magnitudes differ much, else as
        'zero'; 'percent' for 0 to 100; 'any' to fit the values, as where some are negative.
    """
    end = max(axes.dataLim.x1, 0.0) or 1.0  # Below 0 without a point.
    show_as_counts(axes.xaxis)
    if is_time:
        unit, seconds = (
            ("s", 1.0) if end < 180 else ("min", 60.0) if end < 10_800 else ("h", 3600.0)
        )
        ticks = axes.xaxis.get_major_locator().tick_values(0, end / seconds)
        axes.set_xticks([t * seconds for t in ticks], map(CountFormatter(sep=""), ticks))
        axes.set_xlabel(f"{axes.get_xlabel()} ({unit})")
    axes.set_xlim(0, 1.04 * end)
    low, high = axes.dataLim.intervaly
    if y_axis == "log" and high > _LOG_FROM_RATIO * low > 0:
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()} (log)")
        label_log_axis(axes.yaxis)
        return
    if y_axis == "percent":
        axes.set_ylim(0, 100)
    elif y_axis != "any" and low >= 0:
        axes.set_ylim(0, None)
    show_as_counts(axes.yaxis)


class CountFormatter(EngFormatter):
    """Labels ticks as 0.5, 10K, 1.5M or 2B."""

    ENG_PREFIXES = {0: "", 3: "K", 6: "M", 9: "B"}  # noqa: RUF012


def show_as_counts(axis: Axis) -> None:
    """Give an axis few ticks, labelled as 10K or 1.5M."""
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(CountFormatter(sep=""))


def label_log_axis(axis: Axis) -> None:
    """Label powers of 10 of a logarithmic axis, and 2 and 5 times these if it is short."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
    axis.set_major_formatter(CountFormatter(sep=""))
    axis.set_minor_formatter("")


def add_legend(figure: Figure) -> None:
    """Put a legend of all labels below the panels, where it hides nothing.

    Long labels are wrapped; each line of the legend after the first makes the figure higher.
    """
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shared = {INTERVAL: Patch(color=_GREY, **_BAND), _SINGLE_SEEDS: Line2D([], [], **_GREY_SEED)}
    found = [label for label in shared if handles.pop(label, None)]
    handles |= {label: shared[label] for label in found}
    if handles:
        widths = [len(label) + _CHARACTERS_OF_HANDLE for label in handles]
        is_one_row = sum(widths) <= _CHARACTERS_OF_FIGURE
        columns = len(handles) if is_one_row else max(_CHARACTERS_OF_FIGURE // max(widths), 1)
        max_characters = _CHARACTERS_OF_FIGURE - _CHARACTERS_OF_HANDLE
        labels = [textwrap.fill(label, max_characters) for label in handles]
        wrapped = sum(label.count("\n") for label in labels)  # Only if there is one column.
        lines = math.ceil(len(labels) / columns) + wrapped
        figure.set_figheight(figure.get_figheight() + (lines - 1) * _LEGEND_LINE_INCHES)
        place = {"loc": "outside lower center", "ncols": columns}
        figure.legend(handles.values(), labels, **place)


@styled
def encode(figure: Figure, suffix: str) -> bytes:
    """Return the content of a figure's file, for the suffix 'png' or 'svg'."""
    engine = figure.get_layout_engine()
    if engine is not None:  # The layout takes longest and is the same for all files.
        engine.execute(figure)
        figure.set_layout_engine(None)
    content = io.BytesIO()
    figure.savefig(content, format=suffix, metadata={"Date": None} if suffix == "svg" else {})
    return content.getvalue()
