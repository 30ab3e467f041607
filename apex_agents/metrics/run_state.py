"""How a run stands, as its files tell: what the live view shows and plain lines say."""

import collections
import pathlib
import re
import time
from typing import Any

import numpy as np

from apex_agents.runs.folder import Row, RowReader, RunFolder
from apex_agents.runs.workdir import CONFIG_FILE

# Rows come every 5 s: a node whose file is older than this has stopped, or waits for something.
_STALE_SECONDS = 20.0


class RunState:
    """The newest rows of every node.

    Attributes:
      run: the run's folder.
      learner: newest row of the learner, empty before the first.
      replay: newest row of the replay, empty before the first.
      evaluations: all rows of the evaluator.
      actors: newest row of each actor, by its number.
      environment: newest row of each environment, by its number.
      nodes: what the launcher says of each node; empty where none looks after them.
      summary: how the run ended; None while it has not.
      is_running: whether it goes on.
    """

    def __init__(self, run: RunFolder):
        """Begin with nothing; `refresh` reads."""
        self.run = run
        self.learner: Row = {}
        self.replay: Row = {}
        self.evaluations: list[Row] = []
        self.actors: dict[int, Row] = {}
        self.environments: dict[int, Row] = {}
        self.nodes: dict[str, Any] = {}
        self.summary: dict[str, Any] | None = None
        self.is_running = False
        self._wall_time_seconds = 0.0  # Of the newest row.
        self._wall_time_read_at = 0.0
        self._readers: dict[str, RowReader] = {}
        self._read_at: dict[str, float] = {}
        self._learner_steps: collections.deque[tuple[float, float]] = collections.deque(maxlen=100)

    def refresh(self) -> list[tuple[str, Row]]:
        """Read what is new.

        Returns:
          The new rows, each with the name of its file.
        """
        self.is_running = self.run.is_running()
        self.nodes = self.run.nodes()
        self.summary = self.run.summary()
        rows = []
        for name in self.run.logs():
            reader = self._readers.setdefault(name, RowReader(self.run.log_path(name)))
            for row in reader.read():
                self._take(name, row)
                rows.append((name, row))
        return rows

    def is_over(self) -> bool:
        """Return whether the run has ended, or was killed."""
        return self.summary is not None or not self.is_running

    def elapsed_seconds(self) -> float:
        """Return the wall time of the run, without the time for which it was stopped."""
        if self.is_over():
            return self._wall_time_seconds
        # The command that runs wrote the config when it began.
        began = _modification_time(self.run.path / CONFIG_FILE)
        return self._wall_time_seconds + time.time() - max(began, self._wall_time_read_at)

    def is_fresh(self, name: str) -> bool:
        """Return whether a file has had new rows lately; always once the run is over."""
        age = time.monotonic() - self._read_at.get(name, -np.inf)
        return self.is_over() or age < _STALE_SECONDS

    def num_actors(self) -> int:
        """Return the actors of the run, whether they have written anything or not."""
        return self._count("num_actors")

    def num_envs(self) -> int:
        """Return the environments of all actors."""
        return self.num_actors() * self._count("num_envs_per_actor")

    def actor_speed(self) -> float:
        """Return agent steps per second of all actors that act."""
        return sum(
            number(row, "actor_steps_per_second")
            for index, row in self.actors.items()
            if self.is_fresh(f"actor_{index}")
        )

    def parameter_age(self) -> float:
        """Return for how many learner steps the actors have had their parameters, on average."""
        if not self._learner_steps or not self.actors:
            return np.nan
        times, steps = zip(*self._learner_steps, strict=True)
        ages = [
            np.interp(number(row, "wall_time_seconds"), times, steps)
            - number(row, "parameters_learner_steps")
            for row in self.actors.values()
        ]
        return max(float(np.mean(ages)), 0.0)

    def _count(self, name: str) -> int:
        count = self.run.settings("run").get(name)
        return count if isinstance(count, int) else 0

    def _take(self, name: str, row: Row) -> None:
        self._read_at[name] = time.monotonic()
        if number(row, "wall_time_seconds") > self._wall_time_seconds:
            self._wall_time_seconds = number(row, "wall_time_seconds")
            self._wall_time_read_at = _modification_time(self.run.log_path(name))
        if name == "learner":
            self.learner = row
            point = (number(row, "wall_time_seconds"), number(row, "learner_steps"))
            self._learner_steps.append(point)
        elif name == "replay":
            self.replay = row
        elif name == "evaluator":
            self.evaluations.append(row)
        elif match := re.fullmatch(r"actor_(\d+)", name):
            self.actors[int(match[1])] = row
        elif re.fullmatch(r"actor_\d+_envs", name):
            self.environments[int(number(row, "env_index"))] = row


def number(row: Row, column: str) -> float:
    """Return a value of a row; NaN if it has no such number."""
    value = row.get(column, np.nan)
    return value if isinstance(value, float) else np.nan


def _modification_time(path: pathlib.Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
