"""What programs have to know of the data that flows from the actors to the learner."""

from typing import Any, NamedTuple

from apex_agents.replay.tables import TRANSITIONS


class DataFlow(NamedTuple):
    """The table that actors write and the learner reads, and when a learner step is due.

    Attributes:
      table: name of the table.
      replicas: copies of each item in the table; numbers below count them once.
      max_size: items of a full table, copies included.
      max_size_field: what determines `max_size`, such as a field of the config; for messages.
      min_size: items needed before the learner starts, without their replicas.
      min_steps: agent steps that lead to so many items.
      min_size_field: what determines `min_size`, for messages.
      items_per_step: items for each learner step, where acting and learning take turns.
      steps_per_call: learner steps of one call of the learner.
    """

    table: str = TRANSITIONS
    replicas: int = 1
    max_size: int = 1
    max_size_field: str = ""
    min_size: int = 1
    min_steps: int = 1
    min_size_field: str = ""
    items_per_step: float = 1.0
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
        min_size_field="agent.replay.min_size",
        items_per_step=config.batch_size / (replay.samples_per_insert or 1.0),
        steps_per_call=config.num_sgd_steps_per_step,
    )
