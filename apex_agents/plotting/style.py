"""How our figures look: colours, axes, bands and legends."""

import functools
import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from apex_agents.plotting.curves import Curve, aggregate, thin

# Okabe and Ito's colours, which colour-blind people can tell apart, without the yellow that nobody
# sees on white; the line styles tell them apart in grey.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: Sequence[Any] = ("-", (0, (5, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1, 1)))
GREY = "#666666"

# Of histograms: one behind the other.
AREA: dict[str, Any] = {"fill": True, "facecolor": "#9ecae1", "edgecolor": "none"}
OUTLINE: dict[str, Any] = {"fill": False, "edgecolor": "#D55E00", "linewidth": 1.6}
# Of single seeds.
_FAINT: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.35}
# Of single rows.
DOTS: dict[str, Any] = {
    "color": _COLORS[0],
    "linestyle": "",
    "marker": "o",
    "alpha": 0.4,
    "markeredgewidth": 0,
    "zorder": 1.5,  # Below lines.
}
REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (2, 2))}

WIDTH_INCHES = 8.0
_PIXELS_PER_INCH = 200  # Twice what a page of 800 pixels shows.

# Where they would not run into each other.
_MAX_MARKED_POINTS = 40
# By which a reference line may extend an axis, relative to what the curves take.
_REFERENCE_MARGIN = 0.5
# From here on a linear axis would show the largest values only.
_LOG_FROM_RATIO = 20.0

_SIZES = ((1e9, "B"), (1e6, "M"), (1e3, "K"))

_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.5,
    "figure.titlesize": 11,
    "font.family": "DejaVu Sans",  # Comes with Matplotlib.
    "font.size": 9,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.0,
    "savefig.dpi": _PIXELS_PER_INCH,
    "svg.hashsalt": "apex_agents",  # The same figure is the same file.
    "xtick.color": GREY,
    "xtick.labelcolor": "black",
    "xtick.labelsize": 8.5,
    "ytick.color": GREY,
    "ytick.labelcolor": "black",
    "ytick.labelsize": 8.5,
}

Function = TypeVar("Function", bound=Callable[..., Any])


def styled(function: Function) -> Function:
    """Make a function draw in our style, whatever Matplotlib is set to, and leave that as it is."""

    @functools.wraps(function)
    def draw(*args: Any, **kwargs: Any) -> Any:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_STYLE)
            return function(*args, **kwargs)

    return draw  # type: ignore[return-value]


def new_figure(title: str, rows: int, columns: int, height: float, **axes: Any) -> Any:
    """Make a figure that is as wide as a page.

    Args:
      title: above all panels.
      rows: of panels.
      columns: of panels.
      height: inches.
      **axes: for `Figure.subplots`, such as `sharey`.

    Returns:
      The figure and its panels, row by row.
    """
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False, **axes).flatten().tolist()


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dashes of the line of a group; 28 of them differ."""
    return {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _DASHES[index % len(_DASHES)],
    }


def draw_group(axes: Axes, curves: Sequence[Curve], index: int, label: str) -> None:
    """Draw the runs of one group: a line with a band, and a faint line for each of several seeds.

    Args:
      axes: where.
      curves: one per run.
      index: of the group, which gives its style.
      label: of the line.
    """
    style = line_style(index)
    curves = [thin(curve) for curve in curves if len(curve.x)]
    if len(curves) > 1:
        for curve in curves:
            marker = "o" if len(curve.x) == 1 else ""  # Which has no line.
            axes.plot(curve.x, curve.y, marker=marker, color=style["color"], **_FAINT)
    curve = aggregate(curves)
    if not len(curve.x):
        return
    if (curve.upper > curve.lower).any():
        axes.fill_between(
            curve.x, curve.lower, curve.upper, color=style["color"], alpha=0.2, linewidth=0
        )
    marker = "o" if len(curve.x) <= _MAX_MARKED_POINTS else ""
    axes.plot(curve.x, curve.y, **style, marker=marker, label=label)


def draw_reference(axes: Axes, value: float) -> bool:
    """Draw a horizontal line that is no curve, unless it is so far off that the curves shrink.

    Args:
      axes: after the curves were drawn.
      value: where the line is.

    Returns:
      Whether it was drawn.
    """
    low, high = axes.get_ylim()
    margin = _REFERENCE_MARGIN * (high - low)
    is_near = low - margin <= value <= high + margin
    if is_near:
        axes.axhline(value, **REFERENCE)
    return is_near


def note(axes: Axes, text: str) -> None:
    """Write in the middle of a panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)


class TimeUnit(NamedTuple):
    """In what a time is shown.

    Attributes:
      seconds: that it has.
      name: with which it goes on an axis.
    """

    seconds: float
    name: str


def time_unit(seconds: float) -> TimeUnit:
    """Return the unit in which times up to this one are small numbers above 1."""
    if seconds < 180:
        return TimeUnit(1.0, "s")
    if seconds < 3 * 3600:
        return TimeUnit(60.0, "min")
    return TimeUnit(3600.0, "h")


def scale_axes(axes: Axes, y_axis: str) -> None:
    """Begin the x axis at 0, scale the y axis, and label ticks as 10K or 1.5M.

    Args:
      axes: after everything was drawn.
      y_axis: 'zero' for one that begins at 0, 'log' for one that is logarithmic where values are of
        very different sizes and begins at 0 otherwise, 'any' for one that fits the values.
    """
    axes.set_xlim(left=0)
    low, high = axes.dataLim.intervaly
    if y_axis == "log" and high > _LOG_FROM_RATIO * low > 0:
        axes.set_yscale("log")
        show_as_counts(axes.xaxis)
        return
    if y_axis != "any":
        axes.set_ylim(bottom=0)
    show_as_counts(axes.xaxis, axes.yaxis)


def show_as_counts(*all_axis: Axis) -> None:
    """Give an axis few ticks, labelled as 10K or 1.5M."""
    for axis in all_axis:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, position: format_count(value)))


def format_count(value: float) -> str:
    """Return a number as 0.5, 10K, 1.5M or 2B."""
    size, letter = next((pair for pair in _SIZES if abs(value) >= pair[0]), (1.0, ""))
    return f"{value / size:.4g}{letter}".replace("-", "\N{MINUS SIGN}")


@styled
def encode(figure: Figure, suffix: str) -> bytes:
    """Return the content of a figure's file.

    Args:
      figure: what to draw.
      suffix: 'png' or 'svg'.
    """
    engine = figure.get_layout_engine()
    if engine is not None:  # Takes longest; what it found is the same for all files.
        engine.execute(figure)
        figure.set_layout_engine(None)
    content = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {}
    figure.savefig(content, format=suffix, metadata=metadata)
    return content.getvalue()
