"""How far a run is, as seen from the replay server: it counts everything that passes through it."""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb

from apex_agents.replay.client import table_name
from apex_agents.replay.messages import BEGINNING, EVALUATION, Evaluation, InitialActorSteps
from apex_agents.replay.tables import TRANSITIONS

_POLL_TIMEOUT_SECONDS = 2


class ReplayStatistics(NamedTuple):
    """Counts of a run.

    Attributes:
      actor_steps: transitions added by all actors since the run began, replicas counted once.
      inserted: those of them that were added to this server.
      sampled: transitions that the learner sampled from this server.
      replay_size: transitions in the replay now.
      evaluation: the newest one, None before the first.
    """

    actor_steps: int = 0
    inserted: int = 0
    sampled: int = 0
    replay_size: int = 0
    evaluation: Evaluation | None = None

    @property
    def samples_per_insert(self) -> float:
        """Transitions sampled for each one added."""
        return self.sampled / max(self.inserted, 1)


def read_statistics(
    client: reverb.Client, replicas: int = 1, timeout_seconds: int = 5
) -> ReplayStatistics:
    """Ask the replay server how far the run is.

    Args:
      client: connected to the replay server.
      replicas: times each transition is added.
      timeout_seconds: how long to wait for the server.

    Raises:
      reverb.errors.DeadlineExceededError: the server did not answer.
      RuntimeError: the connection broke, or the server is another run's.
    """
    names = (TRANSITIONS, EVALUATION, BEGINNING)
    transitions, evaluation, beginning = _read_tables(client, names, timeout_seconds)
    inserted = _count_inserted(transitions, replicas)
    before = _read_latest(client, BEGINNING).actor_steps if beginning.current_size else 0
    return ReplayStatistics(
        actor_steps=int(before) + inserted,
        inserted=inserted,
        sampled=transitions.rate_limiter_info.sample_stats.completed,
        replay_size=transitions.current_size,
        evaluation=_read_latest(client, EVALUATION) if evaluation.current_size else None,
    )


def count_inserted(client: reverb.Client, replicas: int, timeout_seconds: int = 5) -> int:
    """Ask the replay server how many transitions were added to it, replicas counted once.

    Raises:
      As `read_statistics` does.
    """
    (transitions,) = _read_tables(client, (TRANSITIONS,), timeout_seconds)
    return _count_inserted(transitions, replicas)


def report_evaluation(client: reverb.Client, evaluation: Evaluation) -> None:
    """Make an evaluation the newest one."""
    client.insert(evaluation, {table_name(client, EVALUATION): 1.0})


def report_actor_steps_before(client: reverb.Client, actor_steps: int) -> None:
    """Say how many transitions were added before this server was started."""
    beginning = InitialActorSteps(np.asarray(actor_steps, np.int64))
    client.insert(beginning, {table_name(client, BEGINNING): 1.0})


def _read_tables(client: reverb.Client, names: Sequence[str], timeout_seconds: int) -> list[Any]:
    """Ask the server about some tables of the client's run."""
    tables = client.server_info(timeout_seconds)
    full_names = [table_name(client, name) for name in names]
    if not set(full_names) <= set(tables):
        address = client.server_address
        raise RuntimeError(f"{address} has tables {list(tables)} but not {full_names}.")
    return [tables[name] for name in full_names]


def _count_inserted(transitions: Any, replicas: int) -> int:
    return transitions.rate_limiter_info.insert_stats.completed // replicas


def _read_latest(client: reverb.Client, table: str) -> Any:
    samples = client.sample(
        table_name(client, table), emit_timesteps=False, unpack_as_table_signature=True
    )
    data = next(iter(samples)).data
    return type(data)(*[column[0] for column in data])


class StatisticsPoller:
    """Reads the statistics in a thread of its own, so that a slow server holds up nobody."""

    def __init__(self, client: reverb.Client, replicas: int, period_seconds: float = 0.5):
        """Start reading every `period_seconds`; see `read_statistics` for the others."""
        self.latest = ReplayStatistics()
        self._stop = threading.Event()

        def poll_forever() -> None:
            while not self._stop.wait(period_seconds):
                try:
                    self.latest = read_statistics(client, replicas, _POLL_TIMEOUT_SECONDS)
                except (RuntimeError, reverb.errors.ReverbError):
                    continue  # The server is away: the last statistics stand.

        self._thread = threading.Thread(target=poll_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        # Python aborts if it ends while a thread is inside a call.
        self._thread.join(_POLL_TIMEOUT_SECONDS + 1)
