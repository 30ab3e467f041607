"""Curves of the returns of training episodes, by how much their environments explore."""

from collections.abc import Mapping, Sequence

import numpy as np

from apex_agents.metrics import columns
from apex_agents.plotting.curves import Curve, has_numbers, is_drawable, make_curve
from apex_agents.plotting.env_rows import EnvRows, read_env_rows
from apex_agents.plotting.run_groups import Columns, RunGroup

_MAX_POINTS = 60
_LEAST_SECONDS = 5.0  # Between two rows of an actor.
_QUARTER = 0.25
# The files with the progress of a run over its wall time.
_LOGS = {columns.ACTOR_STEPS: columns.REPLAY, columns.LEARNER_STEPS: columns.LEARNER}


def read_training_curves(group: RunGroup, x: str) -> dict[str, list[Curve]]:
    """Return the mean return of training episodes against a column, a curve for each run.

    Args:
      group: runs of one setting.
      x: name of the column: actor steps, learner steps or wall time.

    Returns:
      Curves of the least and the most exploring quarter of the environments by their labels; of
      all environments if these explore alike; none without episodes.
    """
    for exploration in (columns.EPSILON, columns.NOISE_SCALE):
        runs = read_env_rows(group, exploration)
        levels = np.unique(np.concatenate([rows.exploration for rows in runs]))
        if len(levels):
            break
    else:
        return {}
    low, high = np.quantile(levels, [_QUARTER, 1 - _QUARTER])
    if low == high:
        parts = {"training episodes": runs}
    else:
        name = exploration.replace("_", " ")
        parts = {
            f"training, {name} up to {low:.2g}": [r.where(r.exploration <= low) for r in runs],
            f"training, {name} from {high:.2g}": [r.where(r.exploration >= high) for r in runs],
        }
    progress = group.read_columns(_LOGS[x]) if x in _LOGS else [{} for _ in runs]
    curves = {label: _make_curves(found, progress, x) for label, found in parts.items()}
    return {label: found for label, found in curves.items() if found}


def _make_curves(runs: Sequence[EnvRows], progress: Sequence[Columns], x: str) -> list[Curve]:
    """Return the curves of the runs that have a point."""
    curves = []
    for rows, table in zip(runs, progress, strict=True):
        if len(rows.time) and (x not in _LOGS or has_numbers(table, x, columns.WALL_TIME_SECONDS)):
            time, mean_return = _average_by_time(rows)
            curves.append(make_curve(_locate(time, table, x), mean_return))
    return [curve for curve in curves if len(curve.x)]


def _average_by_time(rows: EnvRows) -> tuple[np.ndarray, np.ndarray]:
    """Return mean time and mean return per episode for each part of the run with an episode."""
    start = rows.time.min()
    seconds = max(_LEAST_SECONDS, (rows.time.max() - start) / _MAX_POINTS)
    part = ((rows.time - start) / seconds).astype(int)
    episodes = np.bincount(part, rows.episodes)
    has_episode = episodes > 0
    time, mean_return = (
        np.bincount(part, rows.episodes * values)[has_episode] / episodes[has_episode]
        for values in (rows.time, rows.mean_return)
    )
    return time, mean_return


def _locate(time: np.ndarray, table: Mapping[str, np.ndarray], x: str) -> np.ndarray:
    """Return where on the x axis the run was at these times."""
    if x not in _LOGS:
        return time
    times, steps = table[columns.WALL_TIME_SECONDS], table[x]
    is_known = is_drawable(times) & is_drawable(steps)
    times, steps = (np.append(0.0, values[is_known]) for values in (times, steps))
    order = np.argsort(times, kind="stable")
    return np.interp(time, times[order], steps[order])
