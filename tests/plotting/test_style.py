"""Tests of what all figures share: labels of ticks, units of time, styles of lines."""

import matplotlib
import pytest
from matplotlib.figure import Figure

from apex_agents.plotting import style


@style.styled
def draw() -> Figure:
    figure, (axes,) = style.new_figure("title", 1, 1, 3.0)
    axes.plot([0, 1], [0, 1])
    return figure


def test_figures_look_alike_whatever_matplotlib_is_set_to():
    expected = style.encode(draw(), "svg")
    with matplotlib.rc_context({"axes.grid": False, "font.size": 30, "axes.facecolor": "red"}):
        assert style.encode(draw(), "svg") == expected
        assert matplotlib.rcParams["font.size"] == 30


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (0.001, "0.001"),
        (950, "950"),
        (10_000, "10K"),
        (-2500, "\N{MINUS SIGN}2.5K"),
        (1_500_000, "1.5M"),
        (2e9, "2B"),
    ],
)
def test_ticks_are_short(value, text):
    axis = Figure().subplots().yaxis
    style.show_as_counts(axis)
    assert axis.get_major_formatter()(value) == text


@pytest.mark.parametrize(
    ("seconds", "unit", "end"),
    [(0, "s", 0), (170, "s", 170), (180, "min", 3), (10_799, "min", 180), (10_800, "h", 3)],
)
def test_units_of_time(seconds, unit, end):
    axes = Figure().subplots()
    axes.plot([0, seconds], [1, 2])
    axes.set_xlabel("wall time")
    style.scale_axes(axes, is_time=True, y_axis="zero")
    assert axes.get_xlabel() == f"wall time ({unit})"
    labels = [float(text.get_text()) for text in axes.get_xticklabels()]
    assert 0.5 * end <= max(labels) <= max(1.4 * end, 1)


def test_settings_and_tasks_have_different_styles():
    assert len({str(style.line_style(index)) for index in range(42)}) == 42
    variants = [style.line_style(1, variant) for variant in range(6)]
    assert {variant["color"] for variant in variants} == {style.line_style(1)["color"]}
    assert len({str(variant["linestyle"]) for variant in variants}) == 6
