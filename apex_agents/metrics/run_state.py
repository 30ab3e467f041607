"""The state of a run, read from its files; the live view and plain lines show it."""

import collections
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from apex_agents.metrics import columns
from apex_agents.replay.config import MAX_PRIORITY, MIN_PRIORITY
from apex_agents.runs.csv_file import Row, RowReader
from apex_agents.runs.folder import RunFolder
from apex_agents.stopwatch import Stopwatch

# Rows come every 5 s: a node whose file is older than this has stopped, or waits for something.
_STALE_SECONDS = 20.0
# With more of the priorities at a bound, sampling is no longer prioritized.
_MAX_AT_BOUND_FRACTION = 0.5


class RunState:
    """The newest rows of every node.

    When a process of a running run has ended, its newest row is dropped, except the learner's and
    the replay's step counts. Evaluations are all kept.
    """

    def __init__(self, run: RunFolder, clock: Callable[[], float] | None = None):
        """Start with no row.

        Args:
          run: folder of the run.
          clock: returns the wall time of the run in seconds, as far as it is known without its
            rows; by default the time since this call.
        """
        self.run = run
        self.learner: Row = {}
        self.replay: Row = {}
        self.evaluations: list[Row] = []  # All of them.
        self.actors: dict[int, Row] = {}  # Newest rows by the actor's index.
        self.environments: dict[int, Row] = {}  # Newest rows by the environment's index.
        self.num_episodes = 0  # Episodes of all actors since the run began.
        self.nodes: dict[str, Any] = {}  # Status of each process; empty without a supervisor.
        self.summary: dict[str, Any] | None = None  # None while the run is active, or was killed.
        self.is_running = False
        self._clock = clock or Stopwatch().seconds
        self._refreshing = threading.Lock()
        # Per file: when its newest row was read, and the wall time of that row.
        self._wall_times: dict[str, tuple[float, float]] = {}
        self._ended: set[str] = set()  # Files whose newest row is from a process that has ended.
        self._env_files: dict[int, str] = {}  # Files by the environment's index.
        self._readers: dict[str, RowReader] = {}
        self._learner_steps: collections.deque[tuple[float, float]] = collections.deque(maxlen=100)

    def refresh(self) -> list[tuple[str, Row]]:
        """Read and return the new rows, each with the name of its file."""
        with self._refreshing:  # The monitor's thread may do so, too.
            return self._refresh()

    def _refresh(self) -> list[tuple[str, Row]]:
        self.is_running = self.run.is_running()
        self.nodes = self.run.nodes()
        self.summary = self.run.summary()
        rows = []
        for name in self.run.logs():
            reader = self._readers.setdefault(name, RowReader(self.run.log_path(name)))
            # What cannot be read now is read again in the next period.
            with contextlib.suppress(OSError):
                for row in reader.read():
                    if row:
                        self._take(name, row)
                        rows.append((name, row))
                    elif self.summary is None:
                        self._end_rows(name)
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

    def elapsed_seconds(self) -> float:
        """Return the wall time of the run, without the time for which it was down."""
        times = self._wall_times
        # After a crash the clock goes back to that of the checkpoint: rows from before are later.
        newest = [times[name] for name in times.keys() - self._ended] or [*times.values()]
        if self.is_over():
            return max((seconds for _, seconds in newest), default=0.0)
        now = self._clock()
        return max((seconds + now - read_at for read_at, seconds in newest), default=now)

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
            if self._wall_times.get(columns.actor_file(index), (-np.inf,))[0] >= oldest
        )

    def waits(self) -> list[tuple[str, str, int]]:
        """Return nodes that wait: the name, what for, and how many seconds.

        The longest wait comes first, the learner's last. Waits of less than ten seconds are left
        out.
        """
        waits = [
            (name, node["waits_for"], node["waiting_seconds"])
            for name, node in self.nodes.items()
            if self.is_running and node.get("is_alive") and node.get("waits_for")
        ]
        # The learner may wait because of the others.
        return sorted(waits, key=lambda wait: (wait[0] == columns.LEARNER, -wait[2]))

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
        """Return a problem that the learner's newest row shows, '' for none."""
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

    def _read_count(self, name: str) -> int:
        count = self.run.settings("run").get(name)
        return count if isinstance(count, int) else 0

    def _end_rows(self, name: str) -> None:
        """Forget the rows of a process that has ended, except its steps."""
        self._ended.add(name)
        if name == columns.LEARNER:
            self.learner = _keep(self.learner, columns.LEARNER_STEPS)
        elif name == columns.REPLAY:
            self.replay = _keep(self.replay, columns.ACTOR_STEPS)
        elif (actor := columns.parse_actor_file(name)) is not None:
            self.actors.pop(actor, None)
        for index in [i for i, file in self._env_files.items() if file == name]:
            self.environments.pop(index, None)

    def _take(self, name: str, row: Row) -> None:
        self._ended.discard(name)
        wall_time = number(row, columns.WALL_TIME_SECONDS)
        if np.isfinite(wall_time):
            self._wall_times[name] = self._clock(), wall_time
        if name == columns.LEARNER:
            self.learner = row
            while self._learner_steps and self._learner_steps[-1][0] >= wall_time:
                self._learner_steps.pop()  # Steps that were lost.
            self._learner_steps.append((wall_time, number(row, columns.LEARNER_STEPS)))
        elif name == columns.REPLAY:
            self.replay = row
        elif name == columns.EVALUATOR:
            self.evaluations.append(row)
        elif np.isfinite(index := number(row, columns.ENV_INDEX)):
            self.environments[int(index)], self._env_files[int(index)] = row, name
        elif (actor := columns.parse_actor_file(name)) is not None:
            self.num_episodes += int(np.nan_to_num(number(row, columns.EPISODES)))
            self.actors[actor] = row


def number(row: Row, column: str) -> float:
    """Return a value of a row; NaN if the row has no such number."""
    value = row.get(column, np.nan)
    return value if isinstance(value, float) else np.nan


def format_return(mean: float, standard_error: float | None, spec: str = ",.2f") -> str:
    """Format a mean return with its standard error, if it has one."""
    is_known = standard_error is not None and np.isfinite(standard_error)
    return f"{mean:{spec}} ± {standard_error:{spec}}" if is_known else f"{mean:{spec}}"


def _keep(row: Row, column: str) -> Row:
    return {column: row[column]} if column in row else {}
