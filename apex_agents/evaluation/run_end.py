"""The end of a run, as its learner announces it and waits for the evaluation of its parameters."""

import threading
import time
from collections.abc import Callable, Sequence

import launchpad as lp
import numpy as np
import reverb

from apex_agents.config import RunConfig
from apex_agents.experiment import end_reason
from apex_agents.replay.messages import LAST_STEP, Evaluation
from apex_agents.replay.publishing import Publisher
from apex_agents.replay.statistics import ReplayStatistics, StatisticsPoller
from apex_agents.replay.tables import table_name
from apex_agents.waits import Waiting

_CHECK_PERIOD_SECONDS = 0.1
_ASK_TIMEOUT_SECONDS = 5
_LOOK_SECONDS = 60.0  # The longest time that a look may take: a replay is followed in it.
_ENDLESS = "episodes that never end need environment.max_episode_steps"


class RunEnd:
    """Tells actors and evaluator that the run is over, and which parameters are its last."""

    def __init__(self, clients: Sequence[reverb.Client], should_stop: Callable[[], bool]):
        """Withdraw, in the background, an end that an earlier learner announced and then lost.

        Args:
          clients: clients of all replay servers, which may be replaced.
          should_stop: asked while a server does not answer.
        """
        self._clients = clients
        self._publishers: list[Publisher] = []
        self._last_step = 0
        for client in clients:
            args = (client, should_stop)
            threading.Thread(target=withdraw_last_step, args=args, daemon=True).start()

    def announce(self, learner_steps: int) -> None:
        """Announce on all servers that the parameters after so many learner steps are the last."""
        self._last_step = learner_steps
        self._publishers = [self._publish(client) for client in self._clients]

    def follow(self, index: int) -> None:
        """Announce the end, if it has been announced, on a server that has another client now."""
        if self._publishers:
            self._publishers[index] = self._publish(self._clients[index])

    def close(self) -> None:
        """Send what waits if the servers answer soon."""
        for publisher in self._publishers:
            publisher.close()

    def _publish(self, client: reverb.Client) -> Publisher:
        publisher = Publisher(client, LAST_STEP)
        publisher.publish(np.asarray(self._last_step, np.int64))
        return publisher


def await_evaluation(
    run: RunConfig,
    poller: StatisticsPoller,
    learner_steps: int,
    before_look: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Let the evaluator finish: with the learner's last parameters, unless the target is reached.

    Args:
      run: limits of the run, and of the time that this may take.
      poller: reader of the statistics of all replay servers.
      learner_steps: learner steps of the last parameters, which have been published, as has their
        number in the table `LAST_STEP`.
      before_look: called before every look at the statistics.
      clock: returns a time in seconds.

    Returns:
      Whether they were evaluated; if not, the program stops.

    Raises:
      TimeoutError: they were not evaluated within `evaluation.max_wait_seconds`, whether the
        evaluator is slow, waits for its environments, or was restarted meanwhile.
    """
    stop, limit = lp.stop_event(), run.evaluation.max_wait_seconds
    waited, looked_at = 0.0, clock()
    with Waiting(f"the evaluation of its last parameters ({_ENDLESS})"):
        while not stop.is_set():
            before_look()
            evaluation = poller.latest.evaluation
            if has_reached_target(run, evaluation):
                return True
            if evaluation is not None and evaluation.learner_steps == learner_steps:
                return True
            # Time for which this process was stopped, as by Ctrl-Z, does not count.
            now = clock()
            waited, looked_at = waited + min(now - looked_at, _LOOK_SECONDS), now
            if waited >= limit:
                raise TimeoutError(f"the last parameters were not evaluated within {limit:g} s")
            stop.wait(_CHECK_PERIOD_SECONDS)
    return False


def has_reached_target(run: RunConfig, evaluation: Evaluation | None) -> bool:
    """Return whether an evaluation, if there is one, ends the run."""
    return end_reason(run, 0, ReplayStatistics(evaluation=evaluation)) is not None


def withdraw_last_step(client: reverb.Client, should_stop: Callable[[], bool]) -> None:
    """Let a run continue whose end was announced by a learner that then lost its last steps.

    A server that is busy is asked again until it answers, or until told to stop.
    """
    table = table_name(client, LAST_STEP)
    while not should_stop():
        try:
            tables = client.server_info(_ASK_TIMEOUT_SECONDS)
            if table in tables and tables[table].current_size:
                client.reset(table)
            return
        except (RuntimeError, reverb.errors.ReverbError):
            time.sleep(_CHECK_PERIOD_SECONDS)
