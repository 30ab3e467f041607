"""How far a run is, as seen from the replay server: it counts everything that passes through it."""

import threading
from typing import NamedTuple

import reverb

from apex_agents.replay.tables import EVALUATION, TRANSITIONS, Evaluation


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
    client: reverb.Client,
    replicas: int = 1,
    actor_steps_before: int = 0,
    timeout_seconds: int = 5,
) -> ReplayStatistics:
    """Ask the replay server how far the run is.

    Args:
      client: connected to the replay server.
      replicas: times each transition is added.
      actor_steps_before: transitions added before this server was started.
      timeout_seconds: how long to wait for the server.

    Raises:
      reverb.errors.DeadlineExceededError: the server did not answer.
      RuntimeError: the connection broke.
    """
    info = client.server_info(timeout_seconds)
    table = info[TRANSITIONS]
    limiter = table.rate_limiter_info
    inserted = limiter.insert_stats.completed // replicas
    return ReplayStatistics(
        actor_steps=actor_steps_before + inserted,
        inserted=inserted,
        sampled=limiter.sample_stats.completed,
        replay_size=table.current_size,
        evaluation=_read_evaluation(client) if info[EVALUATION].current_size else None,
    )


def report_evaluation(client: reverb.Client, evaluation: Evaluation) -> None:
    """Make an evaluation the newest one."""
    client.insert(evaluation, {EVALUATION: 1.0})


def _read_evaluation(client: reverb.Client) -> Evaluation:
    samples = client.sample(EVALUATION, emit_timesteps=False, unpack_as_table_signature=True)
    return Evaluation(*[column[0] for column in next(iter(samples)).data])


class StatisticsPoller:
    """Reads the statistics in a thread of its own, so that a slow server holds up nobody."""

    def __init__(
        self,
        client: reverb.Client,
        replicas: int,
        actor_steps_before: int = 0,
        period_seconds: float = 0.5,
    ):
        """Start reading every `period_seconds`; see `read_statistics` for the others."""
        self.latest = ReplayStatistics(actor_steps=actor_steps_before)
        self._stop = threading.Event()

        def poll_forever() -> None:
            while not self._stop.wait(period_seconds):
                try:
                    self.latest = read_statistics(client, replicas, actor_steps_before)
                except (RuntimeError, reverb.errors.ReverbError):
                    continue  # The server is away: the last statistics stand.

        self._thread = threading.Thread(target=poll_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
