"""The figure of the epsilon ladder: the returns of environments that explore differently."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apex_agents.metrics import columns
from apex_agents.plotting import curves, style
from apex_agents.plotting.curve_figures import describe_line, make_title
from apex_agents.plotting.curves import is_drawable
from apex_agents.plotting.env_rows import EnvRows, read_env_rows
from apex_agents.plotting.run_groups import RunGroup

_NEWEST = 0.25  # Part of a run that the figure shows.
_MAX_TICKS = 12
_OPAQUE_ROWS = 60


@style.styled
def draw_exploration(groups: Sequence[RunGroup]) -> Figure | None:
    """Draw the return against epsilon, in the newest quarter of each run.

    Returns None without episodes, or if all environments explore alike, as in Ape-X DPG.
    """
    rows = [[found for found in _read_rows(group) if len(found.exploration)] for group in groups]
    if not any(np.ptp(found.exploration) > 0 for group in rows for found in group):
        return None
    is_single = [len(runs) for runs in rows] == [1]
    title = f"{make_title(groups)}: newest quarter of {'the' if is_single else 'each'} run"
    figure, (axes,) = style.new_figure(title, 1, 1, 3.5)
    handles = []
    for index, (group, runs) in enumerate(zip(groups, rows, strict=True)):
        if runs:
            look = {**style.line_style(index), "marker": "o"}
            _draw_ladder(axes, runs, look)
            single = "mean of each epsilon's episodes"
            text = describe_line(group, len(runs), len(groups) > 1, single)
            handles.append(style.line_handle(text, **look))
    if any(len(runs) > 1 for runs in rows):
        handles.append(style.line_handle("95 % confidence interval", **style.ERROR_BAR))
    if is_single:
        handles.append(_draw_rows(axes, rows[0][0]))
    if len(groups) == 1:
        handles += _draw_evaluations(axes, groups[0])
    _label_epsilons(axes, np.unique(np.concatenate([r.exploration for runs in rows for r in runs])))
    axes.set_ylabel("return per episode")
    style.show_as_counts(axes.yaxis)
    style.add_legend(figure, handles)
    return figure


def _read_rows(group: RunGroup) -> list[EnvRows]:
    """Read the newest rows of all environments of each run."""
    runs = read_env_rows(group, columns.EPSILON)
    return [
        rows.where(_is_newest(rows.time) & (rows.exploration > 0) & (rows.exploration <= 1))
        for rows in runs
    ]


def _is_newest(time: np.ndarray) -> np.ndarray:
    times = time[is_drawable(time)]
    end = times.max(initial=0.0)
    return time >= end - _NEWEST * (end - times.min(initial=end))


def _draw_ladder(axes: Axes, runs: Sequence[EnvRows], look: dict) -> None:
    """Draw the mean return of each epsilon that all runs have, with error bars over the runs."""
    means = [_average_by_epsilon(rows) for rows in runs]
    shared = sorted(set.intersection(*[set(mean) for mean in means]))
    values = np.array([[mean[epsilon] for epsilon in shared] for mean in means])
    y = curves.interquartile_mean(values)
    lower, upper = curves.bootstrap_interval(values)
    ends = [y - lower, upper - y] if len(runs) > 1 else None
    axes.errorbar(shared, y, ends, **look, markersize=5, capsize=2.5, elinewidth=1.0)


def _average_by_epsilon(rows: EnvRows) -> dict[float, float]:
    """Return the mean return per episode for each epsilon."""
    epsilons, index = np.unique(rows.exploration, return_inverse=True)
    returns = np.bincount(index, rows.episodes * rows.mean_return)
    return dict(zip(epsilons, returns / np.bincount(index, rows.episodes), strict=True))


def _draw_rows(axes: Axes, rows: EnvRows) -> Artist:
    """Draw a dot for each row, fainter if there are many; return their legend entry."""
    alpha = float(np.clip(_OPAQUE_ROWS / len(rows.exploration), 0.05, style.DOTS["alpha"]))
    # An .svg would hold thousands of dots.
    look = {**style.DOTS, "alpha": alpha, "rasterized": True}
    axes.plot(rows.exploration, rows.mean_return, **look)
    return style.line_handle("mean of one environment over 5 s", **style.DOTS)


def _draw_evaluations(axes: Axes, group: RunGroup) -> list[Artist]:
    """Draw the evaluator's mean return in the same time; return its legend entries."""
    names = (columns.MEAN_RETURN, columns.WALL_TIME_SECONDS)
    tables = group.read_columns(columns.EVALUATOR)
    found = [
        [table[name] for name in names] for table in tables if curves.has_numbers(table, *names)
    ]
    newest = [values[_is_newest(time)] for values, time in found]
    returns = [values[is_drawable(values)].mean() for values in newest if is_drawable(values).any()]
    if not returns:
        return []
    mean = float(curves.interquartile_mean(np.array(returns)))
    if not style.draw_reference(axes, mean):
        return []
    epsilon = group.field("agent.exploration.evaluation_epsilon")
    return [style.line_handle(f"evaluator (epsilon {epsilon:g})", **style.REFERENCE)]


def _label_epsilons(axes: Axes, epsilons: np.ndarray) -> None:
    """Make the x axis logarithmic; label all epsilons, or powers of 10 if there are too many."""
    axes.set_xlabel("epsilon of the environment")
    axes.set_xscale("log")
    if len(epsilons) <= _MAX_TICKS:
        axes.set_xticks(epsilons, [f"{epsilon:.2g}" for epsilon in epsilons])
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_formatter("{x:g}")
