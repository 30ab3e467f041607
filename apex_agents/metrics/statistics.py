"""Progress of a run, as the replay server knows it."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import reverb

from apex_agents.repeating import Repeating
from apex_agents.replay.connections import Clients, PerServer
from apex_agents.replay.messages import (
    ACTOR_STEPS,
    EVALUATION,
    LAST_STEP,
    Evaluation,
    read_latest,
)
from apex_agents.replay.tables import DataFlow, if_reachable, table_name

_POLL_TIMEOUT_SECONDS = 2
_ONE_BY_ONE = DataFlow()  # Each transition is one item.


class ReplayStatistics(NamedTuple):
    """Counts of a run, in items (transitions, or gradients); replicas are counted once."""

    actor_steps: int = 0  # Agent steps that all actors reported since the run began.
    inserted: int = 0  # Added to this server, which may have been started later.
    sampled: int = 0  # Sampled from this server by the learner.
    replay_size: int = 0  # In the replay now.
    evaluation: Evaluation | None = None  # The newest one.
    last_step: int | None = None  # Learner steps of the last parameters; None before the run's end.

    @property
    def samples_per_insert(self) -> float:
        """Items sampled for each one added."""
        return self.sampled / max(self.inserted, 1)


def read_statistics(
    client: reverb.Client, flow: DataFlow = _ONE_BY_ONE, timeout_seconds: int = 5
) -> ReplayStatistics:
    """Read the statistics of a run; `flow` names the table of its data.

    Raises:
      reverb.errors.DeadlineExceededError: the server did not answer.
      RuntimeError: the connection broke, or the server is another run's.
    """
    names = (flow.table, EVALUATION, ACTOR_STEPS, LAST_STEP)
    items, evaluation, counts, last = _read_tables(client, names, timeout_seconds)
    return ReplayStatistics(
        actor_steps=sum(read_latest(client, counts.name).tolist()) if counts.current_size else 0,
        inserted=items.rate_limiter_info.insert_stats.completed // flow.replicas,
        sampled=items.rate_limiter_info.sample_stats.completed,
        replay_size=items.current_size // flow.replicas,
        evaluation=read_latest(client, evaluation.name) if evaluation.current_size else None,
        last_step=int(read_latest(client, last.name)) if last.current_size else None,
    )


def read_actor_steps(client: reverb.Client, timeout_seconds: int = 5) -> list[int] | None:
    """Return the steps of each actor of this server since the run began, by the actor's index.

    None while a server that was just started does not know them. Raises as `read_statistics` does.
    """
    (counts,) = _read_tables(client, (ACTOR_STEPS,), timeout_seconds)
    return read_latest(client, counts.name).tolist() if counts.current_size else None


def _read_tables(client: reverb.Client, names: Sequence[str], timeout_seconds: int) -> list[Any]:
    tables = client.server_info(timeout_seconds)
    full_names = [table_name(client, name) for name in names]
    if not set(full_names) <= set(tables):
        address = client.server_address
        raise RuntimeError(f"{address} has tables {list(tables)} but not {full_names}.")
    return [tables[name] for name in full_names]


def add_statistics(parts: Sequence[ReplayStatistics]) -> ReplayStatistics:
    """Return the statistics of several servers together: sums, and the newest messages."""
    found = [part.evaluation for part in parts if part.evaluation is not None]
    last = max((p.last_step for p in parts if p.last_step is not None), default=None)
    # Prefer the evaluation of the run's last parameters: a learner that resumed from a checkpoint
    # may end at a lower step than one evaluated before.
    newest = max(found, key=lambda e: (e.learner_steps == last, e.learner_steps), default=None)
    return ReplayStatistics(
        actor_steps=sum(part.actor_steps for part in parts),
        inserted=sum(part.inserted for part in parts),
        sampled=sum(part.sampled for part in parts),
        replay_size=sum(part.replay_size for part in parts),
        evaluation=newest,
        last_step=last,
    )


class StatisticsPoller:
    """Reads statistics in a thread for each server, so that a slow one blocks no caller."""

    def __init__(
        self,
        clients: Clients,
        flow: DataFlow = _ONE_BY_ONE,
        period_seconds: float = 0.5,
    ):
        """Start reading.

        Args:
          clients: client of the only server of the run, or of each; see `PerServer`.
          flow: see `read_statistics`.
          period_seconds: seconds between two readings.
        """
        make = functools.partial(_StatisticsReader, flow, period_seconds)
        self._readers: PerServer[_StatisticsReader] = PerServer(clients, make)

    @property
    def parts(self) -> list[ReplayStatistics | None]:
        """The newest statistics of each server, None before the first.

        A server that is away has those that it had.
        """
        return [reader.latest for reader in self._readers]

    @property
    def latest(self) -> ReplayStatistics:
        """The newest statistics of all servers together."""
        return add_statistics([part for part in self.parts if part is not None])

    def refresh(self, index: int) -> None:
        """Read a server now, if it can be reached."""
        if_reachable([*self._readers][index].read)

    def close(self) -> None:
        """Stop reading."""
        self._readers.close()


class _StatisticsReader:
    def __init__(
        self,
        flow: DataFlow,
        period_seconds: float,
        client: reverb.Client,
        before: "_StatisticsReader | None",
    ):
        self.latest: ReplayStatistics | None = before.latest if before is not None else None
        self._flow = flow
        self._client = client
        self._reading = Repeating(
            "Reading statistics", lambda: if_reachable(self.read), period_seconds
        )

    def read(self) -> None:
        found = read_statistics(self._client, self._flow, _POLL_TIMEOUT_SECONDS)
        # A server that has just started does not know the steps before it.
        known = self.latest.actor_steps if self.latest is not None else 0
        self.latest = found._replace(actor_steps=max(found.actor_steps, known))

    def close(self) -> None:
        self._reading.close(_POLL_TIMEOUT_SECONDS + 1)  # Python aborts if it ends during a call.
