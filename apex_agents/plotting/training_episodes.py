"""The episodes of actors, whose environments explore differently, and curves of their returns."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from apex_agents.metrics import columns
from apex_agents.plotting.curves import Curve, has_numbers, is_drawable, make_curve
from apex_agents.plotting.run_groups import Columns, RunGroup

# Bytes that are read from the CSV files of all actors together, and from each of them.
_MAX_BYTES = 2**22
_MIN_BYTES_PER_FILE = 2**15
_MAX_POINTS = 60
_LEAST_SECONDS = 5.0  # The period of an actor's rows.
_QUARTER = 0.25
# The files with the progress of a run over its wall time.
_LOGS = {columns.ACTOR_STEPS: columns.REPLAY, columns.LEARNER_STEPS: columns.LEARNER}


class EnvRows(NamedTuple):
    """Rows with an episode of all environments of a run, `[R]` each."""

    exploration: np.ndarray  # Epsilon (DQN) or scale of the noise (DPG) of the environment.
    episodes: np.ndarray  # Number of episodes that ended, at least 1.
    mean_return: np.ndarray  # Mean return of these episodes.
    time: np.ndarray  # Wall time of the run in seconds.

    def where(self, is_chosen: np.ndarray) -> "EnvRows":
        """Return some of the rows."""
        return EnvRows(*(values[is_chosen] for values in self))


def read_env_rows(group: RunGroup, exploration: str) -> list[EnvRows]:
    """Read the rows of each run; `exploration` is the column that says how they explore."""
    names = [name for name in group.logs() if re.fullmatch(r"actor_\d+_envs", name)]
    max_bytes = max(_MAX_BYTES // max(len(names), 1), _MIN_BYTES_PER_FILE)
    tables = [group.read_columns(name, max_bytes) for name in names]
    return [_join([table[i] for table in tables], exploration) for i in range(len(group.runs))]


def read_training_curves(group: RunGroup, x: str) -> dict[str, list[Curve]]:
    """Return the mean return of training episodes against a column, a curve for each run.

    Args:
      group: runs of one setting.
      x: name of the column: actor steps, learner steps or wall time.

    Returns:
      Curves of the least and the most exploring quarter of the environments by their labels; of
      all environments if these explore alike; none without episodes, or without a column that says
      how an environment explores, as of A2C and A3C.
    """
    for exploration in (columns.EPSILON, columns.NOISE_SCALE):
        runs = read_env_rows(group, exploration)
        levels = np.unique(np.concatenate([rows.exploration for rows in runs]))
        if len(levels):
            break
    else:
        return {}
    low, high = np.quantile(levels, [_QUARTER, 1 - _QUARTER])
    parts = {"mean of training episodes": runs}
    if low < high:
        name = f"training mean, {exploration.replace('_', ' ')}"
        parts = {
            f"{name} up to {low:.2g}": [rows.where(rows.exploration <= low) for rows in runs],
            f"{name} from {high:.2g}": [rows.where(rows.exploration >= high) for rows in runs],
        }
    progress = group.read_columns(_LOGS.get(x, columns.REPLAY))
    curves = {}
    for label, found in parts.items():
        made = [_make_curve(*run, x) for run in zip(found, progress, strict=True)]
        if shown := [curve for curve in made if len(curve.x)]:
            curves[label] = shown
    return curves


def _join(tables: Sequence[Columns], exploration: str) -> EnvRows:
    returns = (columns.EPISODES, columns.EPISODE_RETURN)
    names = (exploration, *returns, columns.WALL_TIME_SECONDS)
    tables = [table for table in tables if has_numbers(table, *names)]
    if not tables:
        return EnvRows(*np.empty([4, 0]))
    rows = EnvRows(*(np.concatenate([table[name] for table in tables]) for name in names))
    is_shown = np.logical_and.reduce([is_drawable(values) for values in rows])
    return rows.where(is_shown & (rows.episodes > 0))


def _make_curve(rows: EnvRows, progress: Columns, x: str) -> Curve:
    """Make the curve of a run, which breaks where `progress` has a row of NaN.

    Its points are the mean time and the mean return per episode of parts of the run.
    """
    times, steps = np.empty([2, 0])
    if has_numbers(progress, columns.WALL_TIME_SECONDS, x):
        times, steps = progress[columns.WALL_TIME_SECONDS], progress[x]
    if not len(rows.time) or (x in _LOGS and not len(times)):
        return Curve(*np.empty([4, 0]))
    start = rows.time.min()
    seconds = max(_LEAST_SECONDS, (rows.time.max() - start) / _MAX_POINTS)
    part = ((rows.time - start) / seconds).astype(int)
    episodes = np.bincount(part, rows.episodes)
    time, mean_return = (
        np.bincount(part, rows.episodes * values)[episodes > 0] / episodes[episodes > 0]
        for values in (rows.time, rows.mean_return)
    )
    stops = np.searchsorted(time, times[1:][np.isnan(times[:-1])])
    time, mean_return = (np.insert(values, stops, np.nan) for values in (time, mean_return))
    if x in _LOGS:
        is_known = is_drawable(times) & is_drawable(steps)
        known = np.array([times[is_known], steps[is_known]])
        known = np.insert(known[:, np.argsort(known[0], kind="stable")], 0, 0.0, axis=1)
        time = np.interp(time, *known)
    return make_curve(time, mean_return)
