"""The state of a run as its files tell it: what the live view and plain lines show."""

import collections
import contextlib
import csv
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from apex_agents.metrics import columns
from apex_agents.replay.config import MAX_PRIORITY, MIN_PRIORITY
from apex_agents.runs.config_file import CONFIG_FILE
from apex_agents.runs.folder import Row, RowReader, RunFolder

# Rows come every 5 s: a node whose file is older than this has stopped, or waits for something.
_STALE_SECONDS = 20.0
# Of the priorities: with more of them sampling is no longer prioritized.
_MAX_AT_BOUND_FRACTION = 0.5


class RunState:
    """The newest rows of every node.

    When a run has been resumed, rows from before tell no more than how far it was.
    """

    def __init__(self, run: RunFolder, clock: Callable[[], float] = time.time):
        """Start with no row; `clock` returns the time in seconds since the epoch."""
        self.run = run
        self.learner: Row = {}
        self.replay: Row = {}
        self.evaluations: list[Row] = []  # All of them.
        self.actors: dict[int, Row] = {}  # By the actor's index.
        self.environments: dict[int, Row] = {}  # By the environment's index.
        self.num_episodes = 0  # Episodes of all actors since the run began.
        self.nodes: dict[str, Any] = {}  # Status of each process; empty without a supervisor.
        self.summary: dict[str, Any] | None = None  # None while the run is active, or was killed.
        self.is_running = False
        self._clock = clock
        self._refreshing = threading.Lock()
        # By file: when it was modified, and the wall time of its newest row.
        self._wall_times: dict[str, tuple[float, float]] = {}
        self._readers: dict[str, RowReader] = {}
        self._read_at: dict[str, float] = {}
        self._learner_steps: collections.deque[tuple[float, float]] = collections.deque(maxlen=100)

    def refresh(self) -> list[tuple[str, Row]]:
        """Read what is new; return the new rows, each with the name of its file."""
        with self._refreshing:  # The monitor's thread may do so, too.
            return self._refresh()

    def _refresh(self) -> list[tuple[str, Row]]:
        self.is_running = self.run.is_running()
        self.nodes = self.run.nodes()
        self.summary = self.run.summary()
        rows = []
        started_at = self._started_at()
        for name in self.run.logs():
            reader = self._readers.setdefault(name, RowReader(self.run.log_path(name)))
            # Of a run that is over the files may be copies, made in any order.
            is_old = self.summary is None and (
                _modification_time(self.run.log_path(name)) < started_at
            )
            # What cannot be read now is read again in the next period.
            with contextlib.suppress(OSError, csv.Error):
                new = reader.read()
                modified_at = _modification_time(self.run.log_path(name))
                for row in new:
                    with contextlib.suppress(ValueError):  # A number of it is damaged.
                        self._take(name, row, is_old, modified_at)
                    rows.append((name, row))
        return rows

    def is_over(self) -> bool:
        """Return whether the run has ended or was killed."""
        return self.summary is not None or not self.is_running

    def is_evaluating_last(self) -> bool:
        """Return whether the run has reached a limit and evaluates its last parameters."""
        run = self.run.settings("run")
        limits = (
            (number(self.learner, columns.LEARNER_STEPS), run.get("max_learner_steps")),
            (number(self.replay, columns.ACTOR_STEPS), run.get("max_actor_steps")),
            (self.elapsed_seconds(), run.get("max_seconds")),
        )
        reached = any(limit and done >= limit for done, limit in limits)
        return reached and not self.is_over()

    def seconds_since_learning(self) -> float:
        """Return the wall time since the learner's newest row; NaN before the first."""
        return self.elapsed_seconds() - number(self.learner, columns.WALL_TIME_SECONDS)

    def elapsed_seconds(self) -> float:
        """Return the wall time of the run, without the time for which it was down."""
        times, started_at = list(self._wall_times.values()), self._started_at()
        # After a crash the clock goes back to that of the checkpoint: other files are older.
        new = [] if self.summary else [(at, seconds) for at, seconds in times if at >= started_at]
        wall_time = max((seconds for _, seconds in new or times), default=0.0)
        if self.is_over():
            return wall_time
        return wall_time + self._clock() - max([started_at, *(at for at, _ in new)])

    def num_actors(self) -> int:
        """Return the number of actors of the run, whether they have written rows or not."""
        return self._read_count("num_actors")

    def num_envs(self) -> int:
        """Return the number of environments of all actors."""
        return self.num_actors() * self._read_count("num_envs_per_actor")

    def actor_speed(self) -> float:
        """Return the steps per second of all actors that wrote rows lately, or before the end."""
        oldest = -np.inf if self.is_over() else self._clock() - _STALE_SECONDS
        return sum(
            number(row, columns.ACTOR_STEPS_PER_SECOND)
            for index, row in self.actors.items()
            if self._read_at[columns.actor_file(index)] > oldest
        )

    def parameter_age(self) -> float:
        """Return the mean age of the actors' parameters in learner steps; NaN if not known."""
        if not self._learner_steps or not self.actors:
            return np.nan
        times, steps = zip(*self._learner_steps, strict=True)
        ages = [
            np.interp(number(row, columns.WALL_TIME_SECONDS), times, steps)
            - number(row, columns.PARAMETERS_LEARNER_STEPS)
            for row in self.actors.values()
        ]
        return max(float(np.mean(ages)), 0.0)

    def warning(self) -> str:
        """Return what the learner's newest row shows to be wrong, '' for nothing."""
        share = number(self.learner, columns.PRIORITIES_AT_BOUND_FRACTION)
        is_uniform = self.run.settings("agent", "replay").get("priority_exponent") == 0
        if is_uniform or not share > _MAX_AT_BOUND_FRACTION:
            return ""
        return (
            f"{share:.0%} of the new priorities are at a bound, {MIN_PRIORITY:g} or "
            f"{MAX_PRIORITY:g}: the replay samples almost uniformly. Scale rewards in a wrapper: "
            f"TD errors, {number(self.learner, columns.TD_ERROR):.2g} on average, have to be "
            "between the bounds."
        )

    def _started_at(self) -> float:
        # The command wrote the config when it was started.
        return _modification_time(self.run.path / CONFIG_FILE)

    def _read_count(self, name: str) -> int:
        count = self.run.settings("run").get(name)
        return count if isinstance(count, int) else 0

    def _take(self, name: str, row: Row, is_old: bool, modified_at: float) -> None:
        """Take over a row; of an old one, written before the command started, what still holds."""
        self._read_at[name] = self._clock()
        wall_time = number(row, columns.WALL_TIME_SECONDS)
        if np.isfinite(wall_time):
            self._wall_times[name] = modified_at, wall_time
        if name == columns.LEARNER:
            self.learner = _keep(row, columns.LEARNER_STEPS) if is_old else row
            while self._learner_steps and self._learner_steps[-1][0] >= wall_time:
                self._learner_steps.pop()  # Steps that were lost.
            self._learner_steps.append((wall_time, number(row, columns.LEARNER_STEPS)))
        elif name == columns.REPLAY:
            self.replay = _keep(row, columns.ACTOR_STEPS) if is_old else row
        elif name == columns.EVALUATOR:
            self.evaluations.append(row)
        elif columns.ENV_INDEX in row:
            if not is_old:
                self.environments[int(number(row, columns.ENV_INDEX))] = row
        elif (actor := columns.parse_actor_file(name)) is not None:
            self.num_episodes += int(np.nan_to_num(number(row, columns.EPISODES)))
            if not is_old:
                self.actors[actor] = row


def number(row: Row, column: str) -> float:
    """Return a value of a row; NaN if the row has no such number."""
    value = row.get(column, np.nan)
    return value if isinstance(value, float) else np.nan


def _keep(row: Row, column: str) -> Row:
    return {column: row[column]} if column in row else {}


def _modification_time(path: pathlib.Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
