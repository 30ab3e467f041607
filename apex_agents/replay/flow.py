"""What programs have to know of the data that flows from the actors to the learner."""

from typing import Any, NamedTuple

from apex_agents.replay.tables import TRANSITIONS


class DataFlow(NamedTuple):
    """The table that actors write and the learner reads, and when a learner step is due.

    Attributes:
      table: name of the table.
      replicas: items of the table that each transition becomes.
      transitions_per_item: transitions that each item is made of.
      max_size: items of a full table.
      max_size_field: what decides `max_size`, for messages.
      min_size: transitions needed before the learner starts.
      min_size_field: what decides `min_size`, for messages.
      transitions_per_step: transitions for each learner step, where acting and learning take turns.
      steps_per_call: learner steps of one call of the learner.
    """

    table: str = TRANSITIONS
    replicas: int = 1
    transitions_per_item: int = 1
    max_size: int = 1
    max_size_field: str = ""
    min_size: int = 1
    min_size_field: str = ""
    transitions_per_step: float = 1.0
    steps_per_call: int = 1

    def count_transitions(self, num_items: int) -> int:
        """Return of how many transitions so many items were made."""
        return num_items * self.transitions_per_item // self.replicas

    def count_items(self, num_transitions: int) -> int:
        """Return how many items so many transitions become."""
        return num_transitions * self.replicas // self.transitions_per_item


def make_data_flow(config: Any) -> DataFlow:
    """Return the flow of an Ape-X agent's transitions.

    Without a ratio of samples to inserts, acting and learning that take turns sample one transition
    for each that is added.

    Args:
      config: the agent's settings; `replay`, `batch_size` and `num_sgd_steps_per_step` are read.
    """
    replay = config.replay
    return DataFlow(
        replicas=replay.replicas,
        max_size=replay.max_size,
        max_size_field="agent.replay.max_size",
        min_size=min(
            -(-replay.min_size // replay.replicas), replay.max_size // replay.replicas or 1
        ),
        min_size_field="agent.replay.min_size",
        transitions_per_step=config.batch_size / (replay.samples_per_insert or 1.0),
        steps_per_call=config.num_sgd_steps_per_step,
    )
