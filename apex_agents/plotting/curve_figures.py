"""Figures of the numbers in a run's logs over time: returns, speeds, learning.

Each function takes groups of runs and returns a figure, or None if the runs have no row for it. The
runs of a group are seeds, whose curves are aggregated.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apex_agents.metrics import columns
from apex_agents.plotting import style
from apex_agents.plotting.curves import MAX_POINTS, Curve, describe_mean, has_numbers, make_curve
from apex_agents.plotting.run_groups import RunGroup
from apex_agents.plotting.training_curves import read_training_curves

_X_LABELS = {
    columns.ACTOR_STEPS: "actor steps",
    columns.LEARNER_STEPS: "learner steps",
    columns.WALL_TIME_SECONDS: "wall time",
}
_TARGET = "run.target_return"
_TASKS_PER_ROW = 3


class Quantity(NamedTuple):
    """What the curves of one panel show."""

    log: str  # Name of the CSV file.
    label: str  # Quantity and unit.
    column: str
    divisor: str = ""  # Column by which it is divided.
    factor: float = 1.0
    error: str = ""  # Column with half the height of a single run's band.
    axis: str = "zero"  # See `style.scale_axes`.


_RETURN = Quantity(
    columns.EVALUATOR,
    "return per episode",
    columns.MEAN_RETURN,
    error=columns.STANDARD_ERROR,
    axis="any",
)
_SPEEDS = (
    Quantity(columns.REPLAY, "actor steps per second", columns.INSERTS_PER_SECOND),
    Quantity(columns.LEARNER, "learner steps per second", columns.LEARNER_STEPS_PER_SECOND),
    Quantity(
        columns.REPLAY,
        "samples per insert",
        columns.SAMPLES_PER_SECOND,
        divisor=columns.INSERTS_PER_SECOND,
    ),
    Quantity(
        columns.LEARNER, "learner waits for data (%)", columns.DATA_WAIT_FRACTION, factor=100.0
    ),
    Quantity(columns.REPLAY, "transitions in the replay", columns.REPLAY_SIZE),
)
_LEARNING = (
    Quantity(columns.LEARNER, "loss", columns.LOSS, axis="log"),
    Quantity(columns.LEARNER, "mean |TD error|", columns.TD_ERROR, axis="log"),
    Quantity(columns.LEARNER, "gradient norm", columns.GRADIENT_NORM, axis="log"),
    Quantity(columns.LEARNER, "mean Q-value", columns.Q_VALUE, axis="any"),
    Quantity(columns.LEARNER, "sample age (learner steps)", columns.SAMPLE_AGE_STEPS),
    _RETURN,
)


@style.styled
def draw_returns(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the evaluator's mean return against actor steps, learner steps and wall time.

    Thin lines are the returns of training episodes, if there is only one group. Tasks, if there are
    several, have panels of their own.
    """
    if len({group.task for group in groups}) > 1:
        return _draw_tasks(groups)
    figure, panels = style.new_figure(make_title(groups), 1, 3, 3.1, sharey=True)
    drawn, training = [], {}
    for axes, x in zip(panels, _X_LABELS, strict=True):
        training = read_training_curves(groups[0], x) if len(groups) == 1 else {}
        drawn.append(_draw_quantity(axes, groups, _RETURN, x, training))
        axes.label_outer()
    handles = _make_legend(groups, drawn[0], _RETURN)
    handles += [
        style.line_handle(label, **style.thin_line_style(index))
        for index, label in enumerate(training)
    ]
    handles += _draw_references("target return", [(axes, groups, _TARGET) for axes in panels])
    style.add_legend(figure, handles)
    return figure if any(map(any, drawn)) or training else None


def _draw_tasks(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the evaluator's mean return against actor steps, with one panel per task."""
    tasks: dict[str, list[RunGroup]] = {}
    for group in groups:
        tasks.setdefault(group.task, []).append(group)
    num_columns = min(len(tasks), _TASKS_PER_ROW)
    num_rows = math.ceil(len(tasks) / num_columns)
    title = " and ".join(sorted({group.agent for group in groups}))
    figure, panels = style.new_figure(title, num_rows, num_columns, 0.8 + 2.1 * num_rows)
    drawn, targets = [], []
    for (task, members), axes in zip(tasks.items(), panels, strict=False):
        drawn.append((members, _draw_quantity(axes, members, _RETURN, columns.ACTOR_STEPS)))
        targets.append((axes, members, _TARGET))
        axes.set_title(task)
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    # The legend of the panel with the most curves is that of all: a sweep's tasks have the same
    # settings.
    members, curves = max(drawn, key=lambda panel: (len(panel[0]), sum(map(len, panel[1]))))
    handles = _make_legend(members, curves, _RETURN)
    style.add_legend(figure, handles + _draw_references("target return", targets))
    return figure if any(any(curves) for _, curves in drawn) else None


@style.styled
def draw_speeds(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the speeds of actors, learner and replay against wall time."""
    figure, panels = style.new_figure(make_title(groups), 2, 3, 4.4)
    drawn = [
        _draw_quantity(axes, groups, quantity, columns.WALL_TIME_SECONDS)
        for axes, quantity in zip(panels, _SPEEDS, strict=False)
    ]
    *_, ratio, waiting, size, legend = panels
    waiting.set_ylim(0, 100)
    fields = [
        (ratio, groups, "agent.replay.samples_per_insert"),
        (size, groups, "agent.replay.max_size"),
    ]
    handles = _make_legend(groups, drawn[0], _SPEEDS[0])
    style.fill_with_legend(legend, handles + _draw_references("as configured", fields))
    return figure if any(map(any, drawn)) else None


@style.styled
def draw_learning(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the metrics of the learner's updates, and the return, against learner steps."""
    figure, panels = style.new_figure(make_title(groups), 2, 3, 4.5, sharex=True)
    drawn = [
        _draw_quantity(axes, groups, quantity, columns.LEARNER_STEPS)
        for axes, quantity in zip(panels, _LEARNING, strict=True)
    ]
    for axes in panels[:3]:
        axes.set_xlabel("")
    style.add_legend(figure, _make_legend(groups, drawn[0], _LEARNING[0]))
    return figure if any(map(any, drawn[:-1])) else None  # `draw_returns` shows the return, too.


def make_title(groups: Sequence[RunGroup]) -> str:
    """Return agents and task of a figure, and the seeds if it shows a single group."""
    title = " and ".join(sorted({group.agent for group in groups}))
    if len({group.task for group in groups}) == 1:
        title += f" on {groups[0].task}"
    if len(groups) == 1:
        count = len(groups[0].runs)
        title += f", {count} seeds" if count > 1 else f", seed {groups[0].field('run.seed')}"
    return title


def describe_line(group: RunGroup, num_runs: int, has_rivals: bool, single: str) -> str:
    """Return the legend text of a group's line; `single` if one run is all that is drawn."""
    if has_rivals:
        label = group.label.removeprefix(f"{group.task}, ")  # The title names the task.
        return f"{label} ({num_runs} seeds)" if num_runs > 1 else label
    return describe_mean(num_runs) if num_runs > 1 else single


def _make_legend(
    groups: Sequence[RunGroup], drawn: Sequence[Sequence[Curve]], quantity: Quantity
) -> list[Artist]:
    """Return legend entries for the lines and bands that `_draw_quantity` has drawn."""
    handles = []
    for index, (group, curves) in enumerate(zip(groups, drawn, strict=True)):
        is_thinned = any(len(curve.x) > MAX_POINTS for curve in curves)
        single = "mean of an evaluation" if quantity is _RETURN else ""
        single = "mean of neighbouring rows" if is_thinned else single
        text = describe_line(group, len(curves), len(groups) > 1, single)
        if curves and text:
            handles.append(style.line_handle(text, **style.line_style(index)))
    if any(len(curves) > 1 for curves in drawn):
        handles.append(style.band_handle("95 % confidence interval"))
        handles.append(style.line_handle("single seeds", **style.SINGLE_SEED))
    only = [curves[0] for curves in drawn if len(curves) == 1]
    if any(len(curve.x) > MAX_POINTS for curve in only):
        handles.append(style.band_handle("range of averaged rows"))
    elif only and quantity.error:
        handles.append(style.band_handle("± standard error over episodes"))
    return handles


def _draw_quantity(
    axes: Axes,
    groups: Sequence[RunGroup],
    quantity: Quantity,
    x: str,
    training: Mapping[str, Sequence[Curve]] = MappingProxyType({}),
) -> list[list[Curve]]:
    """Draw a quantity against a column, behind it the curves of training episodes.

    Returns:
      The curves of each group's runs with a point.
    """
    curves = [_read_curves(group, quantity, x) for group in groups]
    behind = [list(runs) for runs in training.values()]
    axes.set_xlabel(_X_LABELS[x])
    if x == columns.WALL_TIME_SECONDS:
        ends = [curve.x[-1] for runs in (*curves, *behind) for curve in runs]
        unit, seconds = style.time_unit(max(ends, default=0.0))
        axes.set_xlabel(f"{_X_LABELS[x]} ({unit})")
        curves, behind = (
            [[curve._replace(x=curve.x / seconds) for curve in runs] for runs in drawn]
            for drawn in (curves, behind)
        )
    for index, runs in enumerate(behind):
        style.draw_thin_line(axes, runs, index)
    for index, group in enumerate(groups):
        style.draw_group(axes, curves[index], index, group.label)
    if not axes.get_lines():
        axes.annotate("no rows yet", (0.5, 0.5), xycoords="axes fraction", ha="center", va="center")
    axes.set_ylabel(quantity.label)
    style.scale_axes(axes, quantity.axis)
    return curves


def _read_curves(group: RunGroup, quantity: Quantity, x: str) -> list[Curve]:
    """Return the curves of the runs that have a point."""
    names = [name for name in (x, quantity.column, quantity.divisor, quantity.error) if name]
    curves = []
    for table in group.read_columns(quantity.log):
        if has_numbers(table, *names):
            y = quantity.factor * table[quantity.column]
            if quantity.divisor:
                with np.errstate(all="ignore"):  # Points that are not finite are not drawn.
                    y = y / table[quantity.divisor]
            curves.append(make_curve(table[x], y, table.get(quantity.error)))
    return [curve for curve in curves if len(curve.x)]


def _draw_references(
    label: str, fields: Sequence[tuple[Axes, Sequence[RunGroup], str]]
) -> list[Artist]:
    """Draw numbers on which all groups' configs agree; return a legend entry if there are any."""
    is_drawn = False
    for axes, groups, field in fields:
        value, *others = {group.field(field) for group in groups}
        if not others and isinstance(value, int | float):
            is_drawn |= style.draw_reference(axes, value)
    return [style.line_handle(label, **style.REFERENCE)] if is_drawn else []
