"""Figures of the numbers in a run's logs over time: returns, speeds, learning.

Each function takes groups of runs and returns a figure, or None if the runs have no row for it. The
runs of a group are seeds, whose curves are aggregated.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apex_agents.config import reaches
from apex_agents.metrics import columns
from apex_agents.plotting import style
from apex_agents.plotting.curves import (
    MAX_POINTS,
    Curve,
    has_numbers,
    make_curve,
    thin,
    thin_to_last,
)
from apex_agents.plotting.run_groups import Columns, RunGroup, describe_line, make_title, place_in
from apex_agents.runs.folder import RunFolder

X_LABELS = {
    columns.ACTOR_STEPS: "actor steps",
    columns.LEARNER_STEPS: "learner steps",
    columns.WALL_TIME_SECONDS: "wall time",
}
_TARGET = "target_return"
_METRICS = "environment.metrics"


class Quantity(NamedTuple):
    """What the curves of one panel show."""

    log: str  # Name of the CSV file.
    label: str  # Quantity and unit.
    column: str
    divisor: str = ""  # Column by which it is divided.
    factor: float = 1.0
    error: str = ""  # Column with half the height of a single run's band.
    axis: str = "zero"  # See `style.scale_axes`.
    point: str = "mean since the point before"  # What a point of a single run is.
    fields: tuple[str, ...] = ()  # Field of the config that has the aim, and one that divides it.


_RETURN = Quantity(
    columns.EVALUATOR,
    "return per episode",
    columns.MEAN_RETURN,
    error=columns.STANDARD_ERROR,
    axis="any",
    point="mean of an evaluation",
)
_SPEEDS = (
    Quantity(columns.REPLAY, "inserts per second", columns.INSERTS_PER_SECOND),
    Quantity(columns.LEARNER, "learner steps per second", columns.LEARNER_STEPS_PER_SECOND),
    Quantity(
        columns.REPLAY,
        "samples per insert",
        columns.SAMPLES_PER_SECOND,
        divisor=columns.INSERTS_PER_SECOND,
        fields=("agent.replay.samples_per_insert",),
    ),
    Quantity(
        columns.LEARNER,
        "learner waits for data (%)",
        columns.DATA_WAIT_FRACTION,
        factor=100.0,
        axis="percent",
    ),
    Quantity(
        columns.REPLAY,
        "items in the replay",
        columns.REPLAY_SIZE,
        point="",
        fields=("agent.replay.max_size", "agent.replay.replicas"),
    ),
    _RETURN,
)
_LEARNING = (
    Quantity(columns.LEARNER, "loss", columns.LOSS, axis="log"),
    Quantity(columns.LEARNER, "mean |TD error|", columns.TD_ERROR, axis="log"),
    Quantity(columns.LEARNER, "gradient norm", columns.GRADIENT_NORM, axis="log"),
    Quantity(columns.LEARNER, "mean Q-value", columns.Q_VALUE, axis="any"),
    Quantity(columns.LEARNER, "sample age (learner steps)", columns.SAMPLE_AGE_STEPS),
    _RETURN,
)
_LEARNING_OF_ACTOR_CRITICS = (
    Quantity(columns.LEARNER, "loss of the values", columns.VALUE_LOSS, axis="log"),
    Quantity(columns.LEARNER, "entropy of the policy (nats)", columns.ENTROPY),
    Quantity(columns.LEARNER, "gradient norm", columns.GRADIENT_NORM, axis="log"),
    Quantity(columns.LEARNER, "mean value", columns.VALUE, axis="any"),
    Quantity(columns.LEARNER, "staleness (learner steps)", columns.STALENESS_STEPS),
    _RETURN,
)
_MEMORY = (
    Quantity(columns.LEARNER, "Delta Q at the first trained step", columns.DELTA_Q_FIRST),
    Quantity(columns.LEARNER, "Delta Q at the last trained step", columns.DELTA_Q_LAST),
    _RETURN,
)


@style.styled
def draw_returns(
    groups: Sequence[RunGroup], title: str = "", x: str = columns.ACTOR_STEPS
) -> Figure | None:
    """Draw the evaluator's mean return against actor steps, learner steps and wall time.

    Several tasks have a panel each, against a single column.

    Args:
      groups: the groups.
      title: title of the figure; by default agent, task and setting.
      x: the column against which several tasks are drawn.
    """
    tasks: dict[str, list[RunGroup]] = {}
    for group in groups:
        tasks.setdefault(group.task, []).append(group)
    is_one_task = len(tasks) == 1
    shown = [(groups, column) for column in X_LABELS]
    if not is_one_task:
        shown = [(members, x) for members in tasks.values()]
    heading = f"{title}, {groups[0].task}" if title and is_one_task else title
    figure, panels = style.new_panels(heading or make_title(groups), len(shown), sharey=is_one_task)
    for axes, (members, column) in zip(panels, shown, strict=True):
        _draw_quantity(axes, members, _RETURN, column)
        _draw_reference(axes, members, "target return", f"run.{_TARGET}")
        if is_one_task:
            axes.label_outer()
        else:
            axes.set_title(members[0].task)
    style.add_legend(figure)
    return figure if _shows_anything(panels) else None


@style.styled
def draw_speeds(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the speeds of actors, learner and replay, and the return, against wall time."""
    return _draw_quantities(groups, _SPEEDS, columns.WALL_TIME_SECONDS)


@style.styled
def draw_learning(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the metrics of the learner's updates, and the return, against learner steps.

    Actor-critics have metrics of their own, which are drawn where no group is of another agent.
    """
    tables = [table for group in groups for table in group.read_columns(columns.LEARNER)]
    started = [table for table in tables if has_numbers(table, columns.LEARNER_STEPS)]
    is_actor_critic = all(has_numbers(table, columns.VALUE_LOSS) for table in started)
    quantities = _LEARNING_OF_ACTOR_CRITICS if is_actor_critic else _LEARNING
    return _draw_quantities(groups, quantities, columns.LEARNER_STEPS)


@style.styled
def draw_memory(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw how values depend on the age of recurrent states, and the return, over learner steps."""
    return _draw_quantities(groups, _MEMORY, columns.LEARNER_STEPS)


@style.styled
def draw_metrics(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the numbers of `info` that evaluations have, and the return, against actor steps."""
    named = [name for group in groups for name in group.field(_METRICS) or ()]
    tables = [table for group in groups for table in group.read_columns(columns.EVALUATOR)]
    shown = [
        name
        for name in dict.fromkeys([columns.IS_SUCCESS, *named])
        if any(np.isfinite(table[name]).any() for table in tables if has_numbers(table, name))
    ]
    point = _RETURN.point
    quantities = [Quantity(columns.EVALUATOR, n, n, axis="any", point=point) for n in shown]
    return _draw_quantities(groups, [*quantities, _RETURN], columns.ACTOR_STEPS) if shown else None


def _draw_quantities(
    groups: Sequence[RunGroup], quantities: Sequence[Quantity], x: str
) -> Figure | None:
    """Draw a panel for each quantity, of which the last one is the return."""
    figure, panels = style.new_panels(make_title(groups), len(quantities))
    for axes, quantity in zip(panels, quantities, strict=True):
        _draw_quantity(axes, groups, quantity, x)
        if quantity.fields:
            _draw_reference(axes, groups, "as configured", *quantity.fields)
    style.add_legend(figure)
    return figure if _shows_anything(panels[:-1]) else None  # `draw_returns` shows the return, too.


def _draw_quantity(axes: Axes, groups: Sequence[RunGroup], quantity: Quantity, x: str) -> None:
    """Draw a quantity of groups, all that are in the panel, against a column."""
    for group in groups:
        look = style.line_style(*place_in(group, groups))
        found = _read_curves(group, quantity, x)
        is_thinned = any(len(curve.x) > MAX_POINTS for curve, _ in found)
        point = "mean of neighbouring points" if is_thinned else quantity.point
        label = describe_line(group, groups, len(found), point)
        if len(found) == 1:
            ((curve, _),) = found
            error = "± standard error over episodes" if quantity.error else ""
            band = "range of averaged points" if is_thinned else error
            style.draw_line(axes, thin(curve), label, band, **look)
        elif found:
            curves = [thin_to_last(curve) if ended else thin(curve) for curve, ended in found]
            has_ended = [ended for _, ended in found]
            style.draw_seeds(axes, curves, has_ended, label, look)
    if not axes.get_lines():
        axes.annotate("no rows yet", (0.5, 0.5), xycoords="axes fraction", ha="center", va="center")
    axes.set_xlabel(X_LABELS[x])
    axes.set_ylabel(quantity.label)
    style.scale_axes(axes, x == columns.WALL_TIME_SECONDS, quantity.axis)


def _read_curves(group: RunGroup, quantity: Quantity, x: str) -> list[tuple[Curve, bool]]:
    """Return the curves of the runs that have a point, and whether they ended at their target."""
    names = [name for name in (x, quantity.column, quantity.divisor, quantity.error) if name]
    found = []
    for run, table in zip(group.runs, group.read_columns(quantity.log), strict=True):
        if has_numbers(table, *names):
            y = quantity.factor * table[quantity.column]
            if quantity.divisor:
                with np.errstate(all="ignore"):  # Points that are not finite are not drawn.
                    y = y / table[quantity.divisor]
            has_ended = quantity is _RETURN and _has_ended_at_target(run, table)
            found.append((make_curve(table[x], y, table.get(quantity.error)), has_ended))
    return [(curve, has_ended) for curve, has_ended in found if len(curve.x)]


def _has_ended_at_target(run: RunFolder, table: Columns) -> bool:
    """Return whether a run has ended since its last evaluation reached its target."""
    target = run.settings("run").get(_TARGET)
    has_finished = (run.summary() or {}).get("finished", False)
    if not has_finished or target is None:
        return False
    return reaches(table[columns.MEAN_RETURN][-1], target)


def _draw_reference(axes: Axes, groups: Sequence[RunGroup], label: str, *fields: str) -> None:
    """Draw a number on which all groups' configs agree, divided by others if they have them."""
    (value, *divisors), *rest = {tuple(map(group.field, fields)) for group in groups}
    if axes.get_lines() and not rest and isinstance(value, int | float):
        style.draw_reference(axes, value / math.prod(d or 1 for d in divisors), label)


def _shows_anything(panels: Sequence[Axes]) -> bool:
    return any(axes.get_lines() for axes in panels)
