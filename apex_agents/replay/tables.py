"""The table of transitions (Horgan et al. 2018, section 3 and appendix F), and names of tables.

Names end with the id of their run, so that a client of another run, for example of one that had
the same port before, cannot add to these tables.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import reverb

from apex_agents.replay.config import ReplayConfig

TRANSITIONS = "transitions"

_T = TypeVar("_T")


class RunClient(reverb.Client):
    """A client for the tables of one run; with `run_id` '' for tables with plain names."""

    def __init__(self, server_address: str, run_id: str):
        super().__init__(server_address)
        self.run_id = run_id

    def __reduce__(self) -> Any:
        return type(self), (self.server_address, self.run_id)


def run_table_name(name: str, run_id: str) -> str:
    """Return the name that a table has in a run."""
    return f"{name}-{run_id}" if run_id else name


def table_name(client: reverb.Client, name: str) -> str:
    """Return the name that a table has in the client's run; an ordinary client has no run."""
    return run_table_name(name, getattr(client, "run_id", ""))


def if_reachable(call: Callable[[], _T]) -> _T | None:
    """Return the result of a call to a server, None if the server cannot be reached now.

    It may be away or busy, or be that of another run.
    """
    try:
        return call()
    except (RuntimeError, reverb.errors.ReverbError):
        return None


@contextlib.contextmanager
def serve(tables: Sequence[reverb.Table]) -> Iterator[reverb.Client]:
    """Serve tables in this process, for the time of a `with` block, and yield a client."""
    # Reverb would make such a folder itself, and leave it.
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = reverb.checkpointers.DefaultCheckpointer(folder)
        server = reverb.Server(tables, None, checkpointer)
        try:
            yield reverb.Client(f"localhost:{server.port}")
        finally:
            server.stop()


def make_rate_limiter(config: ReplayConfig) -> reverb.rate_limiters.RateLimiter:
    """Build the limiter, which never blocks adding unless a samples-per-insert ratio is set."""
    if config.samples_per_insert is None:
        return reverb.rate_limiters.MinSize(config.min_size)
    # Reverb counts items, and a transition is `replicas` of them.
    samples_per_item = config.samples_per_insert / config.replicas
    tolerance = config.samples_per_insert_tolerance_rate * config.min_size * samples_per_item
    # Both sides work in batches: a tolerance below a few of them would only make them wait.
    smallest = 4.0 * max(config.max_in_flight * samples_per_item, 1.0)
    limiter = reverb.rate_limiters.SampleToInsertRatio
    return limiter(samples_per_item, config.min_size, max(tolerance, smallest))


def make_transition_table(config: ReplayConfig, signature: Any) -> reverb.Table:
    """Build the table of transitions, sampled with P(k) = p_k^alpha / sum p^alpha.

    Args:
      config: sizes, exponents, eviction policy and ratio.
      signature: nest of `tf.TensorSpec` of one item; see `layout.Layout`.
    """
    remover = reverb.selectors.Prioritized(config.eviction_exponent)
    if config.eviction_policy == "fifo":
        remover = reverb.selectors.Fifo()
    return reverb.Table(
        name=TRANSITIONS,
        sampler=reverb.selectors.Prioritized(config.priority_exponent),
        # Differs from the paper: a full table removes one transition for each that is added,
        # instead of everything over the limit every 100 learner steps.
        remover=remover,
        max_size=config.max_size,
        rate_limiter=make_rate_limiter(config),
        signature=signature,
    )


class DataFlow(NamedTuple):
    """What a program knows of an agent's data: its table, and when a learner step is due.

    Attributes:
      table: name of the table.
      replicas: copies of each item in the table; numbers below count them once.
      max_size: items of a full table, copies included.
      max_size_field: what determines `max_size`, such as a field of the config; for messages.
      min_size: items needed before the learner starts, without their replicas.
      min_steps: agent steps that lead to so many items, at least.
      usual_min_steps: agent steps that do so where episodes are long.
      min_size_field: what determines `min_size`, for messages.
      items_per_step: items for each learner step, where acting and learning take turns.
      items_per_step_field: what determines it; '' where they need not.
      steps_per_call: learner steps of one call of the learner.
    """

    table: str = TRANSITIONS
    replicas: int = 1
    max_size: int = 1
    max_size_field: str = ""
    min_size: int = 1
    min_steps: int = 1
    usual_min_steps: int = 1
    min_size_field: str = ""
    items_per_step: float = 1.0
    items_per_step_field: str = ""
    steps_per_call: int = 1


def make_data_flow(config: Any) -> DataFlow:
    """Return the flow of an Ape-X agent's transitions.

    Without a ratio of samples to inserts, acting and learning that take turns sample one transition
    for each that is added.

    Args:
      config: the agent's settings; `replay`, `batch_size` and `num_sgd_steps_per_step` are read.
    """
    replay = config.replay
    min_size = min(-(-replay.min_size // replay.replicas), replay.max_size // replay.replicas or 1)
    return DataFlow(
        replicas=replay.replicas,
        max_size=replay.max_size,
        max_size_field="agent.replay.max_size",
        min_size=min_size,
        min_steps=min_size,
        usual_min_steps=min_size,
        min_size_field="agent.replay.min_size",
        items_per_step=config.batch_size / (replay.samples_per_insert or 1.0),
        items_per_step_field="agent.replay.samples_per_insert" if replay.samples_per_insert else "",
        steps_per_call=config.num_sgd_steps_per_step,
    )
