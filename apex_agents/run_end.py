"""The end of a run: its limits, who decides that one is reached, and the steps counted for it.

The learner's node decides (`RunEnd`): when a limit is reached, it announces which parameters are
the last, waits for their evaluation, and writes the summary. The other nodes learn of it from the
replay server.

Agent steps are counted for it. Actors report them (`StepReporter`), and the nodes of the replays
add them up (`ActorStepCounter`). A report has the index of an actor and all steps that the actors
with this index have sent since the run began. So a report that was lost, or that arrives twice,
does no harm: the next one has its steps, too. Of an actor that is killed, the steps since its last
report are lost, at most those of a second. Of a replay server that is killed nothing is, unless an
actor is killed in the same second: its file may lack the newest reports.
"""

import math
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import reverb

from apex_agents.builder import Adder
from apex_agents.config import RunConfig, reaches
from apex_agents.experiment import Experiment
from apex_agents.learning.learner import ApexLearner
from apex_agents.metrics.statistics import StatisticsPoller, read_actor_steps
from apex_agents.metrics.summary import remove_summary, write_summary
from apex_agents.repeating import Repeating
from apex_agents.replay.connections import PerServer
from apex_agents.replay.messages import (
    ACTOR_STEPS,
    LAST_STEP,
    STEP_REPORTS,
    Evaluation,
    Publisher,
)
from apex_agents.replay.tables import if_reachable, table_name
from apex_agents.runs.files import write_json
from apex_agents.runs.opening import read_counts
from apex_agents.waits import Waiting

_CHECK_PERIOD_SECONDS = 0.1
# Seconds between two reports; the first ones follow each other sooner, since a learner may have
# taken steps within a second.
_REPORT_PERIOD_SECONDS, _FIRST_PERIOD_SECONDS = 1.0, 0.1
_COUNT_PERIOD_SECONDS = 0.02
_ASK_TIMEOUT_SECONDS = 5
_COUNTER_TIMEOUT_SECONDS = 1
# Pauses between two questions for the counts, the first and the longest.
_POLL_SECONDS, _MAX_POLL_SECONDS = 0.002, 0.1
_PARTS = 8  # Parts of the steps that are left, of which an actor may take one at a time.
_LOOK_SECONDS = 60.0  # The longest time that a look may take: a replay is followed in it.
_ENDLESS = "episodes that never end need environment.max_episode_steps"


def end_reason(
    run: RunConfig,
    learner_steps: int = 0,
    actor_steps: int = 0,
    evaluation: Evaluation | None = None,
    seconds: float = 0.0,
) -> str | None:
    """Return why a run is over after steps, an evaluation and wall time, None while it is not."""
    target = run.target_return
    if target is not None and evaluation and reaches(float(evaluation.mean_return), target):
        return f"target return {target:g} reached"
    if run.max_learner_steps is not None and learner_steps >= run.max_learner_steps:
        return f"limit of {run.max_learner_steps} learner steps reached"
    if run.max_actor_steps is not None and actor_steps >= run.max_actor_steps:
        return f"limit of {run.max_actor_steps} actor steps reached"
    if run.max_seconds is not None and seconds >= run.max_seconds:
        return f"limit of {run.max_seconds:g} seconds reached"
    return None


class RunEnd:
    """Decides when a run is over, has its last parameters evaluated, and writes its summary."""

    def __init__(
        self,
        experiment: Experiment,
        clients: Sequence[reverb.Client],
        poller: StatisticsPoller,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Withdraw, in the background, an end that an earlier learner announced and then lost.

        Args:
          experiment: experiment whose run this is.
          clients: clients of all replay servers; see `PerServer`.
          poller: reader of their statistics, which is closed in the end.
          stop: event that says that the program stops.
          clock: returns a time in seconds.
        """
        self._experiment = experiment
        self._clients = clients
        self._poller = poller
        self._stop = stop
        self._clock = clock
        self._reason: str | None = None  # None while no limit has been reached.
        self._last_step = 0
        self._announcements: PerServer[Publisher] | None = None
        remove_summary(experiment)
        for client in clients:
            args = (client, stop.is_set)
            threading.Thread(target=_withdraw_last_step, args=args, daemon=True).start()

    def is_due(self, learner_steps: int = 0) -> bool:
        """Return whether the run has reached a limit after so many steps, or the program stops."""
        self._reason = self._reason or self._find_reason(learner_steps)
        return self._reason is not None or self._stop.is_set()

    def conclude(self, learner: ApexLearner, save: Callable[[], bool]) -> bool:
        """Save and close a learner, after the evaluation of its parameters if the run is over.

        Args:
          learner: learner that takes no further step.
          save: saves it, and returns whether that was possible.

        Returns:
          Whether the run is over; if not, the program stops and the run can be resumed.
        """
        # Saving comes first: the replay server may be stopping, and calls to it may block.
        is_saved = save()
        if self._reason is not None and learner.num_steps:
            learner.publish()
            self._last_step = learner.num_steps
            self._announcements = PerServer(self._clients, self._announce)
            self._reason = self._await_evaluation(self._reason)
            is_saved = is_saved or save()  # The disk may have room again.
        actor_steps = self._poller.latest.actor_steps
        write_summary(self._experiment, self._reason, is_saved, learner.num_steps, actor_steps)
        learner.close()
        self._poller.close()
        if self._announcements is not None:
            self._announcements.close()
        return self._reason is not None

    def _find_reason(self, learner_steps: int) -> str | None:
        done, seconds = self._poller.latest, self._experiment.elapsed_seconds()
        run = self._experiment.run
        return end_reason(run, learner_steps, done.actor_steps, done.evaluation, seconds)

    def _announce(self, client: reverb.Client, before: Publisher | None) -> Publisher:
        """Tell the actors and the evaluator of a server which parameters are the last."""
        publisher = Publisher(client, LAST_STEP)
        publisher.publish(np.asarray(self._last_step, np.int64))
        return publisher

    def _await_evaluation(self, reason: str) -> str | None:
        """Let the evaluator finish: with the last parameters, unless the target is reached.

        Returns:
          Why the run is over, None if the program stops meanwhile. Whether the evaluator is slow,
          waits for its environments or is restarted, `evaluation.max_wait_seconds` is the limit.
        """
        run = self._experiment.run
        limit = run.evaluation.max_wait_seconds
        waited, looked_at = 0.0, self._clock()
        with Waiting(f"the evaluation of its last parameters ({_ENDLESS})"):
            while not self._stop.is_set():
                evaluation = self._poller.latest.evaluation
                is_last = evaluation is not None and evaluation.learner_steps == self._last_step
                if is_last or end_reason(run, evaluation=evaluation):
                    return self._find_reason(self._last_step) or reason
                # Time for which this process was stopped, as by Ctrl-Z, does not count.
                now = self._clock()
                waited, looked_at = waited + min(now - looked_at, _LOOK_SECONDS), now
                if waited >= limit:
                    late = f"the last parameters were not evaluated within {limit:g} s"
                    return f"{reason}, but {late}"
                self._stop.wait(_CHECK_PERIOD_SECONDS)
        return None


def _withdraw_last_step(client: reverb.Client, should_stop: Callable[[], bool]) -> None:
    """Let a run continue whose end was announced by a learner that then lost its last steps.

    A server that is busy is asked again until it answers, or until told to stop.
    """
    table = table_name(client, LAST_STEP)

    def withdraw() -> bool:
        tables = client.server_info(_ASK_TIMEOUT_SECONDS)
        if table in tables and tables[table].current_size:
            client.reset(table)
        return True

    while not should_stop() and not if_reachable(withdraw):
        time.sleep(_CHECK_PERIOD_SECONDS)


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
        previous: "StepReporter | None" = None,
    ):
        """Report nothing, and allow nothing, before `is_limit_reached` is asked.

        Args:
          client: client of the replay server.
          index: index of the actor.
          adders: adders of the actor.
          run: number of actors, of replay servers and of steps since the run began.
          clock: returns seconds.
          previous: reporter of the same adders to the server before it moved.
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
        self._period = _FIRST_PERIOD_SECONDS
        self._publisher = Publisher(client, STEP_REPORTS)
        # Steps of earlier actors with this index.
        self._before: int | None = previous._before if previous else None
        self.knows_counts = True  # Whether the server told them when the limit was last asked for.

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
        self.knows_counts = left is not None
        self._allowed = steps + math.ceil((left or 0) / (_PARTS * self._num_actors))
        return not left

    def close(self) -> None:
        """Report the last steps, if the server answers."""
        if self._before is not None:
            self._report(self._count())
        self._publisher.close()

    def _count(self) -> int:
        return sum(adder.num_steps for adder in self._adders)

    def _report(self, steps: int) -> None:
        self._reports_at = self._clock() + self._period
        self._period = min(2 * self._period, _REPORT_PERIOD_SECONDS)
        if self._before is None:
            counts = self._read_counts()
            if counts is None:
                return
            self._before = _get(counts, self._index)
        self._publisher.publish(np.array([self._index, self._before + steps], np.int64))

    def _count_left(self, steps: int) -> int | None:
        """Return the steps left once the last report has been counted, None if it is not."""
        deadline, pause = time.monotonic() + _ASK_TIMEOUT_SECONDS, _POLL_SECONDS
        while self._before is not None and time.monotonic() < deadline:
            counts = self._read_counts()
            if counts is None:
                break
            if _get(counts, self._index) >= self._before + steps:
                return max(int(self._limit) - sum(counts), 0)
            time.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)
        return None

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
        self._saved: list[int] | None = None  # What was written last.
        self._publish()
        self._counting = Repeating("Counting actor steps", self._count, _COUNT_PERIOD_SECONDS)

    def save(self) -> None:
        """Write the counts to the file, unless it has them."""
        counts = self._counts
        if counts != self._saved and write_json(self._path, counts):
            self._saved = counts

    def close(self) -> None:
        """Count the reports that have arrived, write the file, and stop counting."""
        if self._counting.close(_ASK_TIMEOUT_SECONDS):
            self._count()
        self.save()

    def _count(self) -> None:
        if_reachable(self._count_reports)

    def _count_reports(self) -> None:
        """Count the reports that are there; to wait for one would take 3 s to end."""
        table = table_name(self._client, STEP_REPORTS)
        num_reports = self._client.server_info(_COUNTER_TIMEOUT_SECONDS)[table].current_size
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
