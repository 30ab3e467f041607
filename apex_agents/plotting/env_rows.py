"""The rows that actors write of their environments: episodes and how the environments explore."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from apex_agents.metrics import columns
from apex_agents.plotting.curves import has_numbers, is_drawable
from apex_agents.plotting.run_groups import Columns, RunGroup

# Read from the CSV files of all actors together, and from each of them.
_MAX_BYTES = 2**22
_MIN_BYTES_PER_FILE = 2**15


class EnvRows(NamedTuple):
    """Rows of all environments of a run, `[R]` each."""

    exploration: np.ndarray  # Epsilon (DQN) or scale of the noise (DPG) of the environment.
    episodes: np.ndarray  # Number of episodes that ended, at least 1.
    mean_return: np.ndarray  # Of these episodes.
    time: np.ndarray  # Wall time of the run in seconds.

    def where(self, is_chosen: np.ndarray) -> "EnvRows":
        """Return some of the rows."""
        return EnvRows(*(values[is_chosen] for values in self))


def read_env_rows(group: RunGroup, exploration: str) -> list[EnvRows]:
    """Read the rows with an episode of all environments of each run.

    Args:
      group: runs of one setting.
      exploration: name of the column that says how an environment explores.
    """
    names = [name for name in group.logs() if re.fullmatch(r"actor_\d+_envs", name)]
    max_bytes = max(_MAX_BYTES // max(len(names), 1), _MIN_BYTES_PER_FILE)
    tables = [group.read_columns(name, max_bytes) for name in names]
    return [_join([table[i] for table in tables], exploration) for i in range(len(group.runs))]


def _join(tables: Sequence[Columns], exploration: str) -> EnvRows:
    names = (
        exploration,
        columns.EPISODES,
        columns.EPISODE_RETURN,
        columns.WALL_TIME_SECONDS,
    )
    tables = [table for table in tables if has_numbers(table, *names)]
    if not tables:
        return EnvRows(*np.empty([4, 0]))
    rows = EnvRows(*(np.concatenate([table[name] for table in tables]) for name in names))
    is_shown = np.logical_and.reduce([is_drawable(values) for values in rows])
    return rows.where(is_shown & (rows.episodes > 0))
