"""Returns of training episodes in environments that explore differently: the epsilon ladder."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apex_agents.metrics import columns
from apex_agents.plotting import style
from apex_agents.plotting.curves import (
    INTERVAL,
    estimate,
    has_numbers,
    is_drawable,
)
from apex_agents.plotting.run_groups import Columns, RunGroup, describe_line, make_title, place_in

# Bytes that are read from the CSV files of all actors together, and from each of them.
_MAX_BYTES = 2**22
_MIN_BYTES_PER_FILE = 2**15
_QUARTER = 0.25  # The newest part of a run.
_MAX_TICKS = 12
_OPAQUE_ROWS = 60


class EnvRows(NamedTuple):
    """Rows with an episode of all environments of a run, `[R]` each."""

    epsilon: np.ndarray  # Of the environment.
    episodes: np.ndarray  # Number of episodes that ended, at least 1.
    mean_return: np.ndarray  # Mean return of these episodes.
    time: np.ndarray  # Wall time of the run in seconds.

    def where(self, is_chosen: np.ndarray) -> "EnvRows":
        """Return some of the rows."""
        return EnvRows(*(values[is_chosen] for values in self))


def read_env_rows(group: RunGroup) -> list[EnvRows]:
    """Read the rows of each run; none of agents without epsilons."""
    names = [name for name in group.logs() if re.fullmatch(r"actor_\d+_envs", name)]
    max_bytes = max(_MAX_BYTES // max(len(names), 1), _MIN_BYTES_PER_FILE)
    tables = [group.read_columns(name, max_bytes) for name in names]
    return [_join([table[i] for table in tables]) for i in range(len(group.runs))]


def _join(tables: Sequence[Columns]) -> EnvRows:
    returns = (columns.EPISODES, columns.EPISODE_RETURN)
    names = (columns.EPSILON, *returns, columns.WALL_TIME_SECONDS)
    tables = [table for table in tables if has_numbers(table, *names)]
    if not tables:
        return EnvRows(*np.empty([4, 0]))
    rows = EnvRows(*(np.concatenate([table[name] for table in tables]) for name in names))
    is_shown = np.logical_and.reduce([is_drawable(values) for values in rows])
    return rows.where(is_shown & (rows.episodes > 0))


@style.styled
def draw_exploration(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the return against epsilon, in the newest quarter of each run.

    Returns None without episodes, without epsilons, or if all environments have the same.
    """
    rows = [[found for found in _read_rows(group) if len(found.epsilon)] for group in groups]
    if not any(np.ptp(found.epsilon) > 0 for group in rows for found in group):
        return None
    is_single = [len(runs) for runs in rows] == [1]
    title = f"{make_title(groups)}: newest quarter of {'the' if is_single else 'each'} run"
    figure, (axes,) = style.new_figure(title, 1, 1, 3.5)
    for group, runs in zip(groups, rows, strict=True):
        if runs:
            label = describe_line(group, groups, len(runs), _describe_points(runs[0]))
            _draw_ladder(
                axes, runs, label, marker="o", **style.line_style(*place_in(group, groups))
            )
    if is_single:
        _draw_rows(axes, rows[0][0])
    if len(groups) == 1:
        _draw_evaluations(axes, groups[0])
    _label_epsilons(axes, np.unique(np.concatenate([r.epsilon for runs in rows for r in runs])))
    axes.set_ylabel("return per episode")
    style.show_as_counts(axes.yaxis)
    style.add_legend(figure)
    return figure if axes.get_lines() else None


def _read_rows(group: RunGroup) -> list[EnvRows]:
    """Read the newest rows of all environments of each run."""
    return [
        rows.where(_is_newest(rows.time) & (rows.epsilon > 0) & (rows.epsilon <= 1))
        for rows in read_env_rows(group)
    ]


def _is_newest(time: np.ndarray) -> np.ndarray:
    times = time[is_drawable(time)]
    end = times.max(initial=0.0)
    return time >= end - _QUARTER * (end - times.min(initial=end))


def _draw_ladder(axes: Axes, runs: Sequence[EnvRows], label: str, **look: Any) -> None:
    """Draw the mean return of each epsilon that all runs have, with error bars over the runs."""
    means = [_average_by_epsilon(rows) for rows in runs]
    shared = sorted(set.intersection(*[set(mean) for mean in means]))
    if not shared:  # The runs have hardly begun.
        return
    y, low, high = estimate(np.array([[mean[epsilon] for epsilon in shared] for mean in means]))
    axes.plot(shared, y, markersize=5, label=label, **look)
    if np.isfinite(low).any():
        bars: dict[str, Any] = {"linestyle": "", "capsize": 2.5, "color": look["color"]}
        axes.errorbar(shared, y, [y - low, high - y], label=INTERVAL, **bars)


def _describe_points(rows: EnvRows) -> str:
    """Describe the points of a single run, which are means of some number of episodes."""
    _, index = np.unique(rows.epsilon, return_inverse=True)
    episodes = np.bincount(index, rows.episodes)
    numbers = " to ".join(dict.fromkeys(f"{n:.0f}" for n in (episodes.min(), episodes.max())))
    return f"mean of {numbers} episodes at each epsilon, by all parameters of that time"


def _average_by_epsilon(rows: EnvRows) -> dict[float, float]:
    """Return the mean return per episode for each epsilon."""
    epsilons, index = np.unique(rows.epsilon, return_inverse=True)
    returns = np.bincount(index, rows.episodes * rows.mean_return)
    return dict(zip(epsilons, returns / np.bincount(index, rows.episodes), strict=True))


def _draw_rows(axes: Axes, rows: EnvRows) -> None:
    """Draw a dot for each row, fainter if there are many."""
    alpha = float(np.clip(_OPAQUE_ROWS / len(rows.epsilon), 0.05, 0.4))
    # An .svg would hold thousands of dots.
    look = {**style.DOTS, "alpha": alpha, "rasterized": True}
    axes.plot(rows.epsilon, rows.mean_return, **look)
    label = "mean of the episodes that one environment ended within 5 s"
    axes.plot([], [], label=label, **{**style.DOTS, "alpha": 0.4})


def _draw_evaluations(axes: Axes, group: RunGroup) -> None:
    """Draw the evaluator's mean return in the same time.

    It may be below the return of environments that explore: an evaluation is of a single set of
    parameters, and there are few evaluations.
    """
    names = (columns.MEAN_RETURN, columns.WALL_TIME_SECONDS)
    returns, count = [], 0
    for table in group.read_columns(columns.EVALUATOR):
        if has_numbers(table, *names):
            values, time = (table[name] for name in names)
            values = values[_is_newest(time) & is_drawable(values)]
            returns += [values.mean()] if len(values) else []
            count += len(values)
    if returns:
        epsilon = group.field("agent.exploration.evaluation_epsilon")
        name = "evaluator" if epsilon is None else f"evaluator (epsilon {epsilon:g})"
        number = "one evaluation" if count == 1 else f"{count} evaluations, each"
        label = f"{name}: {number} of one set of parameters"
        style.draw_reference(axes, float(estimate(np.array(returns))[0]), label)


def _label_epsilons(axes: Axes, epsilons: np.ndarray) -> None:
    """Make the x axis logarithmic; label all epsilons, or powers of 10 if there are too many."""
    axes.set_xlabel("epsilon of the environment (log)")
    axes.set_xscale("log")
    style.label_log_axis(axes.xaxis)
    if len(epsilons) <= _MAX_TICKS:
        axes.set_xticks(epsilons, [f"{epsilon:.2g}" for epsilon in epsilons])
        axes.set_xticks([], minor=True)
