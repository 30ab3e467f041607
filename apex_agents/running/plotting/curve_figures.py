"""The figures that show how numbers in the logs of one or several runs went.

Each function takes groups of runs (`run_groups.group_runs`) and returns a figure, or None where the
runs have no row that it could show. Runs of a group are seeds: their curves become one with a band.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apex_agents.running.plotting import style
from apex_agents.running.plotting.curves import (
    MAX_POINTS,
    NOTHING,
    Curve,
    describe_mean,
    has_numbers,
    make_curve,
)
from apex_agents.running.plotting.run_groups import Columns, RunGroup

_TIME = "wall_time_seconds"
_X_LABELS = {"actor_steps": "actor steps", "learner_steps": "learner steps"}
_TASKS_PER_ROW = 3


class Quantity(NamedTuple):
    """What the curves of one panel show.

    Attributes:
      log: name of the CSV file.
      label: quantity and unit.
      column: of the file.
      divisor: another column, by which it is divided; '' for none.
      factor: with which it is multiplied.
      error: the column with half the height of the band of a single run; '' for none.
      axis: 'zero' for one that begins at 0, 'log' for one that is logarithmic where values are of
        very different sizes, 'any'.
    """

    log: str
    label: str
    column: str
    divisor: str = ""
    factor: float = 1.0
    error: str = ""
    axis: str = "zero"


_RETURN = Quantity(
    "evaluator", "return per episode", "mean_return", error="standard_error", axis="any"
)
_SPEEDS = (
    Quantity("replay", "actor steps per second", "inserts_per_second"),
    Quantity("learner", "learner steps per second", "learner_steps_per_second"),
    Quantity("replay", "samples per insert", "samples_per_second", "inserts_per_second"),
    Quantity("learner", "learner waits for data (%)", "waiting_for_data", factor=100.0),
    Quantity("replay", "transitions in the replay", "replay_size"),
)
_LEARNING = (
    Quantity("learner", "loss", "loss", axis="log"),
    Quantity("learner", "mean |TD error|", "td_error", axis="log"),
    Quantity("learner", "gradient norm", "gradient_norm", axis="log"),
    Quantity("learner", "mean Q-value", "q_value", axis="any"),
    Quantity("learner", "sample age (learner steps)", "sample_age_steps"),
    _RETURN,
)


@style.styled
def draw_returns(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the evaluator's mean return against actor steps, learner steps and wall time."""
    if not _have_rows(groups, "evaluator"):
        return None
    figure, panels = style.new_figure(make_title(groups), 1, 3, 3.1, sharey=True)
    for axes, x in zip(panels, ("actor_steps", "learner_steps", _TIME), strict=True):
        _draw_quantity(axes, groups, _RETURN, x)
        axes.label_outer()
        target = _draw_reference(axes, groups, "run.target_return", "target return")
    style.add_legend(figure, [*make_legend(groups, "evaluator"), *target])
    return figure


@style.styled
def draw_tasks(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the evaluator's mean return against actor steps, each group in a panel of its own."""
    groups = [group for group in groups if _have_rows([group], "evaluator")]
    if not groups:
        return None
    rows = math.ceil(len(groups) / _TASKS_PER_ROW)
    figure, panels = style.new_figure(groups[0].agent, rows, _TASKS_PER_ROW, 0.8 + 2.1 * rows)
    for group, axes in zip(groups, panels, strict=False):
        _draw_quantity(axes, [group], _RETURN, "actor_steps")
        axes.set_title(group.label)
        target = _draw_reference(axes, [group], "run.target_return", "target return")
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    style.add_legend(figure, [*make_legend(groups[:1], "evaluator"), *target])
    return figure


@style.styled
def draw_speeds(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw how fast actors, learner and replay work, against wall time."""
    if not _have_rows(groups, "learner", "replay"):
        return None
    figure, panels = style.new_figure(make_title(groups), 2, 3, 4.4)
    for axes, quantity in zip(panels, _SPEEDS, strict=False):
        _draw_quantity(axes, groups, quantity, _TIME)
    handles = make_legend(groups, "replay")
    handles += _draw_reference(
        panels[2], groups, "agent.replay.samples_per_insert", "as configured"
    )
    _draw_reference(panels[4], groups, "agent.replay.max_size", "")
    panels[3].set_ylim(0, 100)
    panels[5].axis("off")
    panels[5].legend(handles=handles, loc="center")
    return figure


@style.styled
def draw_learning(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw what the learner says of its updates, and the return, against learner steps."""
    if not _have_rows(groups, "learner"):
        return None
    figure, panels = style.new_figure(make_title(groups), 2, 3, 4.4, sharex=True)
    for axes, quantity in zip(panels, _LEARNING, strict=True):
        _draw_quantity(axes, groups, quantity, "learner_steps")
    for axes in panels[:3]:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    style.add_legend(figure, make_legend(groups, "learner"))
    return figure


def make_title(groups: Sequence[RunGroup]) -> str:
    """Say which agent and which task a figure shows, and of a single run or setting which seeds."""
    agents, tasks = {group.agent for group in groups}, {group.task for group in groups}
    title = " and ".join(sorted(agents))
    if len(tasks) == 1:
        title += f" on {groups[0].task}"
    if len(groups) == 1:
        count = len(groups[0].runs)
        title += f", {count} seeds" if count > 1 else f", seed {groups[0].field('run.seed')}"
    return title


def make_legend(groups: Sequence[RunGroup], log: str) -> list[Artist]:
    """Say what the lines and bands are that come from the rows of one CSV file."""
    lengths = [_count_rows(group, log) for group in groups]
    handles = [
        style.line_handle(index, text)
        for index, group in enumerate(groups)
        if (text := _describe_line(group, lengths[index], len(groups) > 1, log))
    ]
    if any(len(rows) > 1 for rows in lengths):
        handles += [style.band_handle("95 % confidence interval"), style.seeds_handle()]
    single = max((rows[0] for rows in lengths if len(rows) == 1), default=0)
    if single and log == "evaluator":
        handles.append(style.band_handle("± standard error over episodes"))
    elif single > MAX_POINTS:
        handles.append(style.band_handle("lowest and highest of the rows behind a point"))
    return handles


def _describe_line(group: RunGroup, rows: list[int], has_rivals: bool, log: str) -> str:
    """Say what the line of a group is; '' if it needs no words."""
    if not rows:
        return ""
    if has_rivals:
        return f"{group.label} ({len(rows)} seeds)" if len(rows) > 1 else group.label
    if len(rows) > 1:
        return describe_mean(len(rows))
    return "mean of an evaluation" if log == "evaluator" else ""


def _count_rows(group: RunGroup, log: str) -> list[int]:
    """Return how many rows each run has, without the runs that have none."""
    tables = [columns for columns in group.read_columns(log) if columns]
    return [len(next(iter(columns.values()))) for columns in tables]


def _have_rows(groups: Sequence[RunGroup], *logs: str) -> bool:
    return any(_count_rows(group, log) for group in groups for log in logs)


def _draw_quantity(axes: Axes, groups: Sequence[RunGroup], quantity: Quantity, x: str) -> None:
    """Draw one quantity of all groups against a column of its file."""
    curves = [
        [_read_curve(columns, quantity, x) for columns in group.read_columns(quantity.log)]
        for group in groups
    ]
    if x == _TIME:
        ends = [curve.x[-1] for group in curves for curve in group if len(curve.x)]
        unit = style.time_unit(max(ends, default=0.0))
        curves = [[c._replace(x=c.x / unit.seconds) for c in group] for group in curves]
    for index, group in enumerate(groups):
        style.draw_group(axes, curves[index], index, group.label)
    axes.set_xlabel(f"wall time ({unit.name})" if x == _TIME else _X_LABELS[x])
    axes.set_ylabel(quantity.label)
    style.scale_axes(axes, quantity.axis)


def _read_curve(columns: Columns, quantity: Quantity, x: str) -> Curve:
    """Make the curve of one run; of no point if its file lacks a column."""
    names = [name for name in (x, quantity.column, quantity.divisor, quantity.error) if name]
    if not has_numbers(columns, *names):
        return NOTHING
    y = quantity.factor * columns[quantity.column]
    if quantity.divisor:
        divisor = columns[quantity.divisor]
        y = np.divide(y, divisor, out=np.full_like(y, np.nan), where=divisor > 0)
    return make_curve(columns[x], y, columns[quantity.error] if quantity.error else None)


def _draw_reference(axes: Axes, groups: Sequence[RunGroup], field: str, label: str) -> list[Artist]:
    """Draw a number that all configs have in common; return what explains it, if there is one."""
    values = {group.field(field) for group in groups}
    value = values.pop()
    if values or value is None:
        return []
    style.draw_reference(axes, value)
    return [style.reference_handle(label)]
