"""How transitions of small observations get into the replay: every one is a row of its own."""

import collections

import numpy as np
import reverb

from apex_agents.replay.client import table_name
from apex_agents.replay.streams import RowStream
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import PartialTransition, pack_outcome, pack_transition


class PackedWriter:
    """Writes every transition as one row."""

    def __init__(self, client: reverb.Client, n_step: int, chunk_length: int):
        """Open a stream whose chunks hold `chunk_length` transitions."""
        self.stream = RowStream(client, 1, chunk_length)
        self._table = table_name(client, TRANSITIONS)
        self._observations: collections.deque[np.ndarray] = collections.deque(maxlen=n_step + 1)

    def begin_episode(self, observation: np.ndarray) -> None:
        """Remember the first observation."""
        self.begin_step(observation)

    def begin_step(self, observation: np.ndarray) -> None:
        """Remember the newest observation."""
        self._observations.append(np.array(observation))

    def add_item(self, transition: PartialTransition, priority: float, replicas: int) -> bool:
        """Write the row, and the items that refer to it."""
        first, last = self._observations[-1 - transition.num_steps], self._observations[-1]
        if (outcome := pack_outcome(transition)) is None:
            return False
        row = pack_transition(first, outcome, last)
        if not np.isfinite(row).all():
            return False
        (reference,) = self.stream.append(row)
        self.stream.create_items(self._table, {"transition": reference}, priority, replicas)
        return True

    def end_step(self) -> None:
        """Do nothing: there is no row without a transition."""
