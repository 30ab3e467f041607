"""Legends, which hide nothing: below all panels, or in place of one."""

import textwrap
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from apex_agents.plotting import style

# About as many as fit beside each other.
_CHARACTERS_OF_FIGURE = 112
_CHARACTERS_OF_PANEL = 30
_CHARACTERS_OF_HANDLE = 8


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


def line_handle(index: int, label: str, marker: str = "") -> Artist:
    """Return what stands for the line of a group in a legend."""
    return Line2D([], [], **style.line_style(index), marker=marker, label=label)


def dots_handle(label: str) -> Artist:
    """Return what stands for faint dots in a legend."""
    return Line2D([], [], **style.DOTS, label=label)


def error_bar_handle(label: str) -> Artist:
    """Return what stands for error bars in a legend."""
    return Line2D([], [], color=style.GREY, linestyle="", marker="|", markersize=11, label=label)


def reference_handle(label: str) -> Artist:
    """Return what stands for a reference line in a legend."""
    return Line2D([], [], **style.REFERENCE, label=label)


def band_handle(label: str, color: str = style.GREY) -> Artist:
    """Return what stands for a band in a legend."""
    return Patch(facecolor=color, alpha=0.3, label=label)


def seeds_handle() -> Artist:
    """Return what stands for the faint lines of single seeds in a legend."""
    return Line2D([], [], color=style.GREY, linewidth=0.7, alpha=0.6, label="single seeds")
