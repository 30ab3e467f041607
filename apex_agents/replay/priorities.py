"""Priorities: their bounds in a table, and how the learner writes them back.

Horgan et al. 2018, algorithm 2, lines 7-8. The write-back runs in a separate thread: a replay
server that is slow or unreachable does not delay updates of the network.
"""

import functools
import queue
import threading
from collections.abc import Callable

import numpy as np
import reverb

from apex_agents.replay.config import MAX_PRIORITY, MIN_PRIORITY, ReplayConfig
from apex_agents.replay.tables import TRANSITIONS, if_reachable, table_name

_CLOSE_TIMEOUT_SECONDS = 1


def bounded_priority(td_error: float) -> float:
    """Return `|td_error|` clipped to what a Reverb table can hold; NaN stays NaN."""
    return min(max(abs(td_error), MIN_PRIORITY), MAX_PRIORITY)


def at_bound_fraction(td_errors: np.ndarray) -> float:
    """Return the share of TD errors, `[B]`, whose priorities are at a bound of those of a table."""
    sizes = np.abs(td_errors)
    return float(np.mean((sizes <= MIN_PRIORITY) | (sizes >= MAX_PRIORITY)))


def make_priority_fn(config: ReplayConfig) -> Callable[[float], float]:
    """Return the function from a TD error to the priority of a new transition.

    'max' is the highest priority that this function has computed; in Schaul et al. 2016,
    algorithm 1, it is the highest in the replay.
    """
    highest = MIN_PRIORITY

    def highest_priority(td_error: float) -> float:
        nonlocal highest
        highest = max(highest, bounded_priority(td_error))
        return highest

    return highest_priority if config.initial_priority == "max" else bounded_priority


class PriorityWriter:
    """Writes new priorities into the transition table without holding up its caller.

    Attributes:
      num_dropped_batches: batches that were not written.
      num_not_finite: priorities left out because they were NaN or infinite.
    """

    def __init__(self, client: reverb.Client, max_pending_batches: int = 100):
        """Start the writing thread; batches beyond `max_pending_batches` are dropped."""
        self._client = client
        self._table = table_name(client, TRANSITIONS)
        self._pending: queue.Queue = queue.Queue(max_pending_batches)
        self.num_dropped_batches = 0
        self.num_not_finite = 0
        self._thread = threading.Thread(target=self._write_forever, daemon=True)
        self._thread.start()

    def write(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Hand over one batch: keys of items, `[B]` uint64, and priorities, `[B]`."""
        try:
            self._pending.put_nowait((keys, priorities))
        except queue.Full:
            self.num_dropped_batches += 1

    def flush(self) -> None:
        """Block until the batches handed over so far are written."""
        self._pending.join()

    def close(self) -> None:
        """Write what is pending if the server answers soon, and end the thread."""
        try:
            self._pending.put(None, timeout=_CLOSE_TIMEOUT_SECONDS)
        except queue.Full:  # The server does not answer; a daemon thread delays no exit.
            return
        self._thread.join(timeout=_CLOSE_TIMEOUT_SECONDS)

    def _write_forever(self) -> None:
        while (batch := self._pending.get()) is not None:
            # Without a server learning is only a little worse for these priorities.
            if not if_reachable(functools.partial(self._write, *batch)):
                self.num_dropped_batches += 1
            self._pending.task_done()
        self._pending.task_done()

    def _write(self, keys: np.ndarray, priorities: np.ndarray) -> bool:
        """Write a batch; return that the server has answered."""
        finite = np.isfinite(priorities)
        self.num_not_finite += int((~finite).sum())
        bounded = map(bounded_priority, priorities[finite].tolist())
        updates = dict(zip(keys[finite].tolist(), bounded, strict=True))
        self._client.mutate_priorities(self._table, updates)
        return True
