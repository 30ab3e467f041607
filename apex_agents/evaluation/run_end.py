"""The end of a run: when it is due, what is announced, evaluated and written then.

The node that applies updates decides it: a learner, with whatever it learns from.
"""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import reverb

from apex_agents.config import RunConfig
from apex_agents.experiment import Experiment, end_reason
from apex_agents.learning.learner import ApexLearner
from apex_agents.metrics.summary import remove_summary, write_summary
from apex_agents.replay.connections import PerServer
from apex_agents.replay.messages import LAST_STEP, Evaluation, Publisher
from apex_agents.replay.statistics import ReplayStatistics, StatisticsPoller
from apex_agents.replay.tables import if_reachable, table_name
from apex_agents.waits import Waiting

_CHECK_PERIOD_SECONDS = 0.1
_ASK_TIMEOUT_SECONDS = 5
_LOOK_SECONDS = 60.0  # The longest time that a look may take: a replay is followed in it.
_ENDLESS = "episodes that never end need environment.max_episode_steps"


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
        seconds = self._experiment.elapsed_seconds()
        return end_reason(self._experiment.run, learner_steps, self._poller.latest, seconds)

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
                if is_last or has_reached_target(run, evaluation):
                    return self._find_reason(self._last_step) or reason
                # Time for which this process was stopped, as by Ctrl-Z, does not count.
                now = self._clock()
                waited, looked_at = waited + min(now - looked_at, _LOOK_SECONDS), now
                if waited >= limit:
                    late = f"the last parameters were not evaluated within {limit:g} s"
                    return f"{reason}, but {late}"
                self._stop.wait(_CHECK_PERIOD_SECONDS)
        return None


def has_reached_target(run: RunConfig, evaluation: Evaluation | None) -> bool:
    """Return whether an evaluation, if there is one, ends the run."""
    return end_reason(run, 0, ReplayStatistics(evaluation=evaluation)) is not None


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
