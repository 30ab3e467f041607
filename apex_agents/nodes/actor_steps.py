"""The steps of a run's actors, which report them, and which the nodes of the replays add up.

A report has the index of an actor and all steps that the actors with this index have sent since the
run began. So a report that was lost, or that arrives twice, does no harm: the next one has its
steps, too. Of an actor that is killed, the steps since its last report are lost, at most those of a
second. Of a replay server that is killed nothing is, unless an actor is killed in the same second:
its file may lack the newest reports.
"""

import math
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import reverb

from apex_agents.builder import Adder
from apex_agents.config import RunConfig
from apex_agents.replay.messages import ACTOR_STEPS, STEP_REPORTS, Publisher
from apex_agents.replay.statistics import read_actor_steps
from apex_agents.replay.tables import if_reachable, table_name
from apex_agents.runs.files import write_json
from apex_agents.runs.opening import read_counts

_REPORT_PERIOD_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
_ASK_SECONDS = 1
_POLL_SECONDS, _MAX_POLL_SECONDS = 0.002, 0.1
_PARTS = 8
_COUNT_PERIOD_SECONDS = 0.02


class StepReporter:
    """Reports the steps of one actor, and tells it when all have sent as many as they may.

    With a limit an actor sends an eighth of its share of what is left, waits until the replay has
    all of it, reports it, and asks how much is left now. So a single actor exceeds the limit by
    less than a lock-step, a worker of A2C or A3C by less than a rollout. Of several actors each may
    do so, and one that is eight times as slow as the others by some of its first eighth, too. With
    several replay servers the actors of each have an equal part of the limit.
    """

    def __init__(
        self,
        client: reverb.Client,
        index: int,
        adders: Sequence[Adder],
        run: RunConfig,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Report nothing, and allow nothing, before `is_limit_reached` is asked.

        Args:
          client: client of the replay server.
          index: index of the actor.
          adders: adders of the actor.
          run: number of actors, of replay servers and of steps since the run began.
          clock: returns seconds.
        """
        self._client = client
        self._index = index
        self._adders = adders
        self._limit = math.inf
        if run.max_actor_steps is not None:
            self._limit = math.ceil(run.max_actor_steps / run.num_replays)
        self._num_actors = run.num_actors // run.num_replays
        self._allowed = math.inf if run.max_actor_steps is None else 0  # Steps of this actor.
        self._clock = clock
        self._reports_at = -math.inf
        self._publisher = Publisher(client, STEP_REPORTS)
        self._before: int | None = None  # Steps of earlier actors with this index.

    def is_limit_reached(self) -> bool:
        """Report what is due; return whether this actor has to wait.

        It may act again if a server died and lost counts; while the server's counts are unknown it
        waits.
        """
        steps = self._count()
        is_used_up = steps >= self._allowed
        if not is_used_up and self._clock() < self._reports_at:
            return False
        if is_used_up:
            for adder in self._adders:
                adder.flush()
        self._report(steps)
        if not is_used_up:
            return False
        left = self._count_left(steps)
        self._allowed = steps + math.ceil(left / (_PARTS * self._num_actors))
        return left == 0

    def close(self) -> None:
        """Report the last steps, if the server answers."""
        if self._before is not None:
            self._report(self._count())
        self._publisher.close()

    def _count(self) -> int:
        return sum(adder.num_steps for adder in self._adders)

    def _report(self, steps: int) -> None:
        self._reports_at = self._clock() + _REPORT_PERIOD_SECONDS
        if self._before is None:
            counts = self._read_counts()
            if counts is None:
                return
            self._before = _get(counts, self._index)
        self._publisher.publish(np.array([self._index, self._before + steps], np.int64))

    def _count_left(self, steps: int) -> int:
        """Return the steps left once the last report has been counted, 0 if it is not."""
        deadline, pause = time.monotonic() + _TIMEOUT_SECONDS, _POLL_SECONDS
        while self._before is not None and time.monotonic() < deadline:
            counts = self._read_counts()
            if counts is None:
                break
            if _get(counts, self._index) >= self._before + steps:
                return max(int(self._limit) - sum(counts), 0)
            time.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)
        return 0

    def _read_counts(self) -> list[int] | None:
        return if_reachable(lambda: read_actor_steps(self._client))


class ActorStepCounter:
    """Adds up what the actors of one replay server report, for its clients and on disk."""

    def __init__(self, client: reverb.Client, path: pathlib.Path):
        """Continue the counts of the servers before this one.

        Args:
          client: connected to the server, which is in this process and has no reports yet.
          path: path of the file with the counts.
        """
        self._client = client
        self._path = path
        self._counts = read_counts(path) if path.exists() else []
        self._publish()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._count_forever, daemon=True)
        self._thread.start()

    def save(self) -> None:
        """Write the counts to the file."""
        write_json(self._path, self._counts)

    def close(self) -> None:
        """Count the reports that have arrived, write the file, and stop counting."""
        self._stop.set()
        self._thread.join(_TIMEOUT_SECONDS)
        if not self._thread.is_alive():
            if_reachable(self._count_reports)
        self.save()

    def _count_forever(self) -> None:
        while not self._stop.wait(_COUNT_PERIOD_SECONDS):
            if_reachable(self._count_reports)

    def _count_reports(self) -> None:
        """Count the reports that are there; to wait for one would take 3 s to end."""
        table = table_name(self._client, STEP_REPORTS)
        num_reports = self._client.server_info(_ASK_SECONDS)[table].current_size
        if not num_reports:
            return
        for sample in self._client.sample(
            table, num_reports, emit_timesteps=False, unpack_as_table_signature=True
        ):
            index, steps = map(int, sample.data[0])
            counts = [*self._counts, *[0] * (index + 1 - len(self._counts))]
            counts[index] = max(counts[index], steps)
            self._counts = counts
        self._publish()

    def _publish(self) -> None:
        counts = np.array(self._counts, np.int64)
        self._client.insert(counts, {table_name(self._client, ACTOR_STEPS): 1.0})


def _get(counts: list[int], index: int) -> int:
    """Return the steps of an actor, which may not have reported any yet."""
    return counts[index] if index < len(counts) else 0
