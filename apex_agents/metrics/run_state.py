"""The state of a run, read from its files; the live view and plain lines show it."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from apex_agents.metrics import columns
from apex_agents.replay.config import MAX_PRIORITY, MIN_PRIORITY
from apex_agents.runs.csv_file import Row, RowReader
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import PARAMETER_SERVER
from apex_agents.stopwatch import Stopwatch

# Rows come every 5 s: a node whose file is older than this has stopped, or waits for something.
_STALE_SECONDS = 20.0
# With more of the priorities at a bound, sampling is no longer prioritized.
_MAX_AT_BOUND_FRACTION = 0.5
# With more of the learner steps skipped, something is wrong with the loss or the network.
_MAX_SKIPPED_FRACTION = 0.5


@dataclasses.dataclass
class _Log:
    """What is known of one CSV file."""

    reader: RowReader
    newest: Row = dataclasses.field(default_factory=dict)
    environments: dict[int, Row] = dataclasses.field(default_factory=dict)  # By their index.
    read_at: float = -np.inf  # When the newest row with a wall time was read.
    wall_time: float = np.nan  # The wall time of that row.
    has_ended: bool = False  # Whether the newest row is of a process that has ended.

    def end(self) -> None:
        """Forget the rows of a process that has ended, except its steps."""
        kept = self.newest.keys() & {columns.LEARNER_STEPS, columns.ACTOR_STEPS}
        self.newest = {column: self.newest[column] for column in kept}
        self.environments.clear()
        self.has_ended = True


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
        self.evaluations: list[Row] = []  # All of them.
        self.num_episodes = 0  # Episodes of all actors since the run began.
        self.nodes: dict[str, Any] = {}  # Status of each process; empty without a supervisor.
        self.summary: dict[str, Any] | None = None  # None while the run is active, or was killed.
        self.is_running = False
        self._clock = clock or Stopwatch().seconds
        self._refreshing = threading.Lock()
        self._logs: dict[str, _Log] = {}
        self._learner_steps: collections.deque[tuple[float, float]] = collections.deque(maxlen=100)
        self._skipped_fraction = np.nan  # Of the learner steps between the newest two rows.

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
            log = self._logs.setdefault(name, _Log(RowReader(self.run.log_path(name))))
            for row in log.reader.read():
                if row:
                    self._take(name, log, row)
                    rows.append((name, row))
                elif self.summary is None:
                    log.end()
        return rows

    @property
    def learner(self) -> Row:
        """Newest row of the learner, {} for none."""
        return self._newest(columns.LEARNER)

    @property
    def replay(self) -> Row:
        """Newest row of the replay, {} for none."""
        return self._newest(columns.REPLAY)

    @property
    def environments(self) -> dict[int, Row]:
        """Newest rows of environments, by the environment's index."""
        rows = [item for log in self._logs.values() for item in log.environments.items()]
        # Of a run that was resumed with fewer actors, several files have rows of an index.
        rows.sort(key=lambda item: np.nan_to_num(number(item[1], columns.WALL_TIME_SECONDS)))
        return dict(rows)

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
        timed = [log for log in self._logs.values() if np.isfinite(log.wall_time)]
        # After a crash the clock goes back to that of the checkpoint: rows from before are later.
        newest = [log for log in timed if not log.has_ended] or timed
        if self.is_over():
            return max((log.wall_time for log in newest), default=0.0)
        now = self._clock()
        return max((log.wall_time + now - log.read_at for log in newest), default=now)

    def num_actors(self) -> int:
        """Return the number of actors of the run, whether they have written rows or not."""
        return self._read_count("num_actors")

    def num_envs(self) -> int:
        """Return the number of environments of all actors."""
        return self.num_actors() * self._read_count("num_envs_per_actor")

    def actor_speed(self) -> float:
        """Return the steps per second of all actors that wrote rows lately, or before the end."""
        return self._add_speeds(self._actors(), columns.ACTOR_STEPS_PER_SECOND)

    def waits(self) -> list[tuple[str, str, int]]:
        """Return nodes that wait: the name, what for, and how many seconds.

        The longest wait comes first, those of learners last. Waits of less than ten seconds are
        left out.
        """
        waits = [
            (name, node["waits_for"], node["waiting_seconds"])
            for name, node in self.nodes.items()
            if self.is_running and node.get("is_alive") and node.get("waits_for")
        ]
        # A learner may be waiting for the other nodes.
        last = {columns.LEARNER: 1, PARAMETER_SERVER: 2}
        return sorted(waits, key=lambda wait: (last.get(columns.role_of(wait[0]), 0), -wait[2]))

    def num_learners(self) -> int:
        """Return the number of learners of the run, whether they have written rows or not."""
        return max(self._read_count("num_learners"), 1)

    def gradient_speed(self) -> float:
        """Return the gradients per second of several learners that wrote rows lately."""
        return self._add_speeds(self._learners(), columns.GRADIENTS_PER_SECOND)

    def learners_waiting(self) -> float:
        """Return the mean share of time for which several learners wait; NaN if not known."""
        names = columns.DATA_WAIT_FRACTION, columns.PARAMETER_WAIT_FRACTION, columns.SEND_FRACTION
        shares = [sum(number(log.newest, name) for name in names) for log in self._learners()]
        return float(np.mean(shares)) if shares else np.nan

    def parameter_age(self) -> float:
        """Return the mean age of the actors' parameters in learner steps; NaN if not known."""
        actors = self._actors()
        if not self._learner_steps or not actors:
            return np.nan
        times, steps = zip(*self._learner_steps, strict=True)
        ages = [
            np.interp(number(actor.newest, columns.WALL_TIME_SECONDS), times, steps)
            - number(actor.newest, columns.PARAMETERS_LEARNER_STEPS)
            for actor in actors
        ]
        return max(float(np.mean(ages)), 0.0)

    def warning(self) -> str:
        """Return a problem that the learner's newest row shows, '' for none."""
        if self._skipped_fraction > _MAX_SKIPPED_FRACTION:
            return (
                f"{self._skipped_fraction:.0%} of the newest learner steps had a gradient that is "
                "not finite, and changed nothing: look for a division, a root or a logarithm of 0 "
                "in a torso or a loss of yours, or lower the learning rate."
            )
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

    def _newest(self, name: str) -> Row:
        return self._logs[name].newest if name in self._logs else {}

    def _add_speeds(self, logs: Iterable[_Log], column: str) -> float:
        oldest = -np.inf if self.is_over() else self._clock() - _STALE_SECONDS
        return sum(number(log.newest, column) for log in logs if log.read_at >= oldest)

    def _learners(self) -> list[_Log]:
        """Return the files of several learners that have a row."""
        names = map(columns.learner_file, range(self.num_learners()))
        return [self._logs[n] for n in names if n in self._logs and self._logs[n].newest]

    def _actors(self) -> list[_Log]:
        """Return the files of the actors whose processes have written a row."""
        is_actor = columns.parse_actor_file
        return [log for n, log in self._logs.items() if log.newest and is_actor(n) is not None]

    def _take(self, name: str, log: _Log, row: Row) -> None:
        before, log.newest, log.has_ended = log.newest, row, False
        wall_time, env_index = (
            number(row, name) for name in (columns.WALL_TIME_SECONDS, columns.ENV_INDEX)
        )
        if np.isfinite(wall_time):
            log.read_at, log.wall_time = self._clock(), wall_time
        if np.isfinite(env_index):
            log.environments[int(env_index)] = row
        if name == columns.LEARNER:
            while self._learner_steps and self._learner_steps[-1][0] >= wall_time:
                self._learner_steps.pop()  # Steps that were lost.
            self._learner_steps.append((wall_time, number(row, columns.LEARNER_STEPS)))
            skipped, steps = (
                number(row, column) - number(before, column)
                for column in (columns.STEPS_SKIPPED, columns.LEARNER_STEPS)
            )
            self._skipped_fraction = skipped / steps if steps > 0 else np.nan
        elif name == columns.EVALUATOR:
            self.evaluations.append(row)
        elif columns.parse_actor_file(name) is not None:
            self.num_episodes += int(np.nan_to_num(number(row, columns.EPISODES)))


def number(row: Row, column: str) -> float:
    """Return a value of a row; NaN if the row has no such number."""
    value = row.get(column, np.nan)
    return value if isinstance(value, float) else np.nan


def format_return(mean: float, standard_error: float | None, spec: str = ",.2f") -> str:
    """Format a mean return with its standard error, if it has one."""
    is_known = standard_error is not None and np.isfinite(standard_error)
    return f"{mean:{spec}} ± {standard_error:{spec}}" if is_known else f"{mean:{spec}}"
