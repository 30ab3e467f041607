"""Colours, lines, axes and legends of all figures; `figures.mplstyle` has fonts and sizes."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from apex_agents.plotting.curves import Curve, aggregate, thin

# Decorates functions that draw; the caller's settings of Matplotlib are neither read nor changed.
styled = matplotlib.style.context("apex_agents.plotting.figures", after_reset=True)

# The palette of Okabe and Ito for colour-blind readers, without its yellow, which is invisible on
# white. Line styles differ too, for prints in grey.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: Sequence[Any] = ("-", (0, (5, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1, 1)))
_GREY = "#666666"

# Looks of histograms, the outline in front of the area.
AREA: dict[str, Any] = {"fill": True, "facecolor": "#9ecae1", "edgecolor": "none"}
OUTLINE: dict[str, Any] = {"fill": False, "edgecolor": "#D55E00", "linewidth": 1.6}
# Looks of lines and markers.
REFERENCE: dict[str, Any] = {"color": _GREY, "linewidth": 1.0, "linestyle": (0, (2, 2))}
ERROR_BAR: dict[str, Any] = {"color": _GREY, "linestyle": "", "marker": "|", "markersize": 11}
SINGLE_SEED: dict[str, Any] = {"color": _GREY, "linewidth": 0.7, "alpha": 0.6}
DOTS: dict[str, Any] = {
    "color": _COLORS[0],
    "linestyle": "",
    "marker": "o",
    "alpha": 0.4,
    "markeredgewidth": 0,
    "zorder": 1.5,  # Behind lines.
}

_WIDTH_INCHES = 8.0
# Markers of more points than this would touch each other.
_MAX_MARKED_POINTS = 40
# A reference line may extend the y axis by this part of the range of the curves.
_REFERENCE_MARGIN = 0.5
# From this ratio on, a linear axis would show only the largest values.
_LOG_FROM_RATIO = 20.0
# Characters that fit beside each other at the font size of legends.
_CHARACTERS_OF_FIGURE = 112
_CHARACTERS_OF_PANEL = 30
_CHARACTERS_OF_HANDLE = 8


def new_figure(title: str, rows: int, columns: int, height: float, **axes: Any) -> Any:
    """Make a figure as wide as a page and `height` inches high; `axes` are for `subplots`.

    Returns:
      The figure and a list of its panels, row by row.
    """
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False, **axes).flatten().tolist()


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dashes for the line of a group; 28 combinations differ."""
    color, dashes = _COLORS[index % len(_COLORS)], _DASHES[index % len(_DASHES)]
    return {"color": color, "linestyle": dashes}


def draw_group(axes: Axes, curves: Sequence[Curve], index: int, label: str) -> None:
    """Draw a line with a band for one group of runs, and a faint line for each of several runs.

    Args:
      axes: panel to draw in.
      curves: one curve per run.
      index: index of the group, which determines its style.
      label: label of the line.
    """
    look = line_style(index)
    curves = [thin(curve) for curve in curves if len(curve.x)]
    if len(curves) > 1:
        for curve in curves:
            marker = "o" if len(curve.x) == 1 else ""  # A line needs two points.
            faint = {**SINGLE_SEED, "color": look["color"], "alpha": 0.35}
            axes.plot(curve.x, curve.y, marker=marker, **faint)
    curve = aggregate(curves)
    if not len(curve.x):
        return
    if (curve.upper > curve.lower).any():
        band = {"color": look["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(curve.x, curve.lower, curve.upper, **band)
    marker = "o" if len(curve.x) <= _MAX_MARKED_POINTS else ""
    axes.plot(curve.x, curve.y, **look, marker=marker, label=label)


def thin_line_style(index: int) -> dict[str, Any]:
    """Return the look of a thin line beside a single group's."""
    return {**line_style(index + 1), "linewidth": 1.0}


def draw_thin_line(axes: Axes, curves: Sequence[Curve], index: int) -> None:
    """Draw the mean of one curve per run as a thin line behind those of groups."""
    curve = aggregate([thin(curve) for curve in curves])
    marker = "." if len(curve.x) == 1 else ""  # A line needs two points.
    axes.plot(curve.x, curve.y, **thin_line_style(index), marker=marker, zorder=1.8)


def draw_reference(axes: Axes, value: float) -> bool:
    """Draw a horizontal line, unless it is so far away that the curves drawn before would shrink.

    Returns:
      Whether the line was drawn.
    """
    low, high = axes.get_ylim()
    margin = _REFERENCE_MARGIN * (high - low)
    is_near = low - margin <= value <= high + margin
    if is_near:
        axes.axhline(value, **REFERENCE)
    return is_near


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit, with its seconds, in which a time is a small number above 1."""
    if seconds < 180:
        return "s", 1.0
    return ("min", 60.0) if seconds < 3 * 3600 else ("h", 3600.0)


def scale_axes(axes: Axes, y_axis: str) -> None:
    """Let the x axis begin at 0, scale the y axis, and label ticks as 10K or 1.5M.

    Args:
      axes: panel in which everything is drawn already.
      y_axis: 'zero' to begin at 0; 'log' for a logarithmic axis if magnitudes differ much, else as
        'zero'; 'any' to fit the values.
    """
    axes.set_xlim(left=0)
    show_as_counts(axes.xaxis)
    low, high = axes.dataLim.intervaly
    if y_axis == "log" and high > _LOG_FROM_RATIO * low > 0:
        axes.set_yscale("log")
        return
    if y_axis != "any":
        axes.set_ylim(bottom=0)
    show_as_counts(axes.yaxis)


class CountFormatter(EngFormatter):
    """Labels ticks as 0.5, 10K, 1.5M or 2B."""

    ENG_PREFIXES = {0: "", 3: "K", 6: "M", 9: "B"}  # noqa: RUF012


def show_as_counts(axis: Axis) -> None:
    """Give an axis few ticks, labelled as 10K or 1.5M."""
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(CountFormatter(sep=""))


def line_handle(label: str, **look: Any) -> Artist:
    """Return a legend entry with a line or a marker."""
    return Line2D([], [], label=label, **look)


def band_handle(label: str) -> Artist:
    """Return a legend entry with a band."""
    return Patch(facecolor=_GREY, alpha=0.3, label=label)


def add_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend below all panels, where it hides nothing."""
    if handles:
        widths = [len(str(handle.get_label())) + _CHARACTERS_OF_HANDLE for handle in handles]
        is_one_row = sum(widths) <= _CHARACTERS_OF_FIGURE
        columns = len(handles) if is_one_row else _CHARACTERS_OF_FIGURE // max(widths)
        figure.legend(handles=handles, loc="outside lower center", ncols=max(columns, 1))


def fill_with_legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """Put a legend in place of a panel."""
    axes.axis("off")
    labels = [textwrap.fill(str(handle.get_label()), _CHARACTERS_OF_PANEL) for handle in handles]
    axes.legend(handles, labels, loc="center")


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
