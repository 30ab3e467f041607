"""Progress of a run as the replay server sees it, which counts all that passes through it."""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb

from apex_agents.replay.flow import DataFlow
from apex_agents.replay.messages import (
    EVALUATION,
    INITIAL_ACTOR_STEPS,
    LAST_STEP,
    Evaluation,
    read_latest,
)
from apex_agents.replay.tables import table_name

_POLL_TIMEOUT_SECONDS = 2
_ONE_BY_ONE = DataFlow()  # Each transition is one item.


class ReplayStatistics(NamedTuple):
    """Counts of a run, in transitions; replicas are counted once."""

    actor_steps: int = 0  # Added by all actors since the run began.
    inserted: int = 0  # Added to this server, which may have been started later.
    sampled: int = 0  # Sampled from this server by the learner.
    replay_size: int = 0  # In the replay now.
    evaluation: Evaluation | None = None  # The newest one.
    last_step: int | None = None  # Learner steps of the last parameters; None before the run's end.

    @property
    def samples_per_insert(self) -> float:
        """Transitions sampled for each one added."""
        return self.sampled / max(self.inserted, 1)


def read_statistics(
    client: reverb.Client, flow: DataFlow = _ONE_BY_ONE, timeout_seconds: int = 5
) -> ReplayStatistics:
    """Read the statistics of a run; `flow` says how transitions become items.

    Raises:
      reverb.errors.DeadlineExceededError: the server did not answer.
      RuntimeError: the connection broke, or the server is another run's.
    """
    names = (flow.table, EVALUATION, INITIAL_ACTOR_STEPS, LAST_STEP)
    transitions, evaluation, initial, last = _read_tables(client, names, timeout_seconds)
    inserted = _num_inserted(transitions, flow)
    before = int(read_latest(client, initial.name)) if initial.current_size else 0
    return ReplayStatistics(
        actor_steps=before + inserted,
        inserted=inserted,
        sampled=transitions.rate_limiter_info.sample_stats.completed * flow.transitions_per_item,
        replay_size=flow.count_transitions(transitions.current_size),
        evaluation=read_latest(client, evaluation.name) if evaluation.current_size else None,
        last_step=int(read_latest(client, last.name)) if last.current_size else None,
    )


def count_inserted(
    client: reverb.Client, flow: DataFlow = _ONE_BY_ONE, timeout_seconds: int = 5
) -> int:
    """Return how many transitions were added to this server; raises as `read_statistics` does."""
    (transitions,) = _read_tables(client, (flow.table,), timeout_seconds)
    return _num_inserted(transitions, flow)


def count_actor_steps(
    client: reverb.Client, flow: DataFlow = _ONE_BY_ONE, timeout_seconds: int = 5
) -> int | None:
    """Return the steps of all actors since the run began; raises as `read_statistics` does.

    None while a server that was just started does not know those before it.
    """
    names = (flow.table, INITIAL_ACTOR_STEPS)
    transitions, initial = _read_tables(client, names, timeout_seconds)
    if not initial.current_size:
        return None
    return int(read_latest(client, initial.name)) + _num_inserted(transitions, flow)


def report_evaluation(client: reverb.Client, evaluation: Evaluation) -> None:
    """Replace the newest evaluation."""
    client.insert(evaluation, {table_name(client, EVALUATION): 1.0})


def report_actor_steps_before(client: reverb.Client, actor_steps: int) -> None:
    """Store how many transitions were added before this server was started."""
    client.insert(np.asarray(actor_steps, np.int64), {table_name(client, INITIAL_ACTOR_STEPS): 1.0})


def report_last_step(client: reverb.Client, learner_steps: int) -> None:
    """Tell actors and evaluator that the run is over, and which parameters are its last ones."""
    client.insert(np.asarray(learner_steps, np.int64), {table_name(client, LAST_STEP): 1.0})


def _num_inserted(transitions: Any, flow: DataFlow) -> int:
    return flow.count_transitions(transitions.rate_limiter_info.insert_stats.completed)


def _read_tables(client: reverb.Client, names: Sequence[str], timeout_seconds: int) -> list[Any]:
    tables = client.server_info(timeout_seconds)
    full_names = [table_name(client, name) for name in names]
    if not set(full_names) <= set(tables):
        address = client.server_address
        raise RuntimeError(f"{address} has tables {list(tables)} but not {full_names}.")
    return [tables[name] for name in full_names]


class StatisticsReader:
    """Reads the statistics of all replay servers of a run together."""

    def __init__(
        self, clients: reverb.Client | Sequence[reverb.Client], flow: DataFlow = _ONE_BY_ONE
    ):
        """Take the client of each server, or of the only one; `flow` is as in `read_statistics`."""
        self._clients = [clients] if isinstance(clients, reverb.Client) else clients
        self._flow = flow
        self._newest = [ReplayStatistics() for _ in self._clients]

    def read(self, timeout_seconds: int = _POLL_TIMEOUT_SECONDS) -> ReplayStatistics:
        """Return sums over the servers; one that does not answer has the counts that it had.

        Raises:
          reverb.errors.DeadlineExceededError: no server answered.
          RuntimeError: as above, the connection broke, or the servers are another run's.
        """
        errors = []
        for index, client in enumerate(self._clients):
            try:
                self._newest[index] = read_statistics(client, self._flow, timeout_seconds)
            except (RuntimeError, reverb.errors.ReverbError) as error:
                errors.append(error)
        if len(errors) == len(self._clients):
            raise errors[0]
        return add_statistics(self._newest)


def add_statistics(parts: Sequence[ReplayStatistics]) -> ReplayStatistics:
    """Return the statistics of several servers together: sums, and the newest messages."""
    evaluations = [part.evaluation for part in parts if part.evaluation is not None]
    return ReplayStatistics(
        actor_steps=sum(part.actor_steps for part in parts),
        inserted=sum(part.inserted for part in parts),
        sampled=sum(part.sampled for part in parts),
        replay_size=sum(part.replay_size for part in parts),
        evaluation=max(evaluations, key=lambda e: e.learner_steps, default=None),
        last_step=max((p.last_step for p in parts if p.last_step is not None), default=None),
    )


class StatisticsPoller:
    """Reads `latest` statistics in a thread of its own, so that a slow server blocks no caller."""

    def __init__(
        self,
        clients: reverb.Client | Sequence[reverb.Client],
        flow: DataFlow = _ONE_BY_ONE,
        period_seconds: float = 0.5,
    ):
        """Start reading; see `StatisticsReader`."""
        self.latest = ReplayStatistics()
        self._stop = threading.Event()
        reader = StatisticsReader(clients, flow)

        def poll_forever() -> None:
            while not self._stop.wait(period_seconds):
                try:
                    self.latest = reader.read()
                except (RuntimeError, reverb.errors.ReverbError):
                    continue  # The servers are away: the last statistics remain.

        self._thread = threading.Thread(target=poll_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        # Python aborts if it ends while a thread is inside a call.
        self._thread.join(_POLL_TIMEOUT_SECONDS + 1)
