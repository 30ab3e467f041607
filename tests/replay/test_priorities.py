"""Tests of the bounds of priorities and of their write-back to a real Reverb server."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import reverb
import tensorflow as tf
from waiting import wait_for

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.priorities import (
    PriorityWriter,
    at_bound_fraction,
    bounded_priority,
    make_priority_fn,
)
from apex_agents.replay.tables import TRANSITIONS, make_transition_table


@pytest.mark.parametrize(
    ("td_error", "expected"),
    [(0.0, 1e-6), (-1e-9, 1e-6), (-2.5, 2.5), (3.0, 3.0), (-1e9, 1e6), (np.inf, 1e6)],
)
def test_bounded_priority(td_error, expected):
    assert bounded_priority(td_error) == expected


def test_bounded_priority_of_nan_stays_nan():
    assert math.isnan(bounded_priority(math.nan))


@pytest.mark.parametrize(
    ("td_errors", "share"),
    [
        ([2.5, -3.0, 1e-5, -9e5], 0.0),
        ([0.0, -1e-9, 1e-6, 2.5], 3 / 4),
        ([1e6, -1e7, np.inf, 2.5], 3 / 4),
        ([np.nan, 0.0, -1e7, 2.5], 2 / 4),
    ],
)
def test_share_of_priorities_at_a_bound(td_errors, share):
    assert at_bound_fraction(np.float32(td_errors)) == share


def test_the_highest_priority_is_kept():
    priority_fn = make_priority_fn(ReplayConfig(initial_priority="max"))
    found = [priority_fn(td_error) for td_error in (0.0, -2.0, 1.5, 3.0, math.nan, -1.0, 1e9, 0.5)]
    assert found == [1e-6, 2.0, 2.0, 3.0, 3.0, 3.0, 1e6, 1e6]


def test_priorities_are_td_errors_by_default():
    assert make_priority_fn(ReplayConfig()) is bounded_priority


class FilledTable:
    """A table with the items 0, 1, 2 and 3, all of priority 1."""

    def __init__(self, serve: Callable[..., reverb.Client]):
        config = ReplayConfig(max_size=4, min_size=4, priority_exponent=1.0)
        self.client = serve(make_transition_table(config, tf.TensorSpec([], tf.int64)))
        self.insert(range(4))
        keys: dict[int, int] = {}
        while len(keys) < 4:
            keys.update({number: info.key for number, info in self.sample(20)})
        self.keys = np.array([keys[number] for number in range(4)], np.uint64)

    def insert(self, numbers: range) -> None:
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for number in numbers:
                writer.append(np.int64(number))
                writer.create_item(TRANSITIONS, 1.0, writer.history[-1])

    def sample(self, num_samples: int) -> list[tuple[int, reverb.SampleInfo]]:
        samples = self.client.sample(
            TRANSITIONS, num_samples, emit_timesteps=False, unpack_as_table_signature=True
        )
        return [(int(sample.data), sample.info) for sample in samples]

    def priorities(self) -> list[float]:
        """Return the priorities of 0, 1, 2 and 3; none may be much below the others."""
        priorities: dict[int, float] = {}
        for _ in range(20):
            priorities.update({number: info.priority for number, info in self.sample(50)})
            if len(priorities) == 4:
                break
        return [priorities.get(number, 0.0) for number in range(4)]


@pytest.fixture
def table(serve) -> FilledTable:
    return FilledTable(serve)


@pytest.fixture
def writer(table) -> Iterator[PriorityWriter]:
    writer = PriorityWriter(table.client)
    yield writer
    writer.close()


def test_priorities_arrive(table, writer):
    writer.write(table.keys[[0, 2]], np.array([2.0, 5.0], np.float32))
    writer.write(table.keys[[3]], np.array([3.0], np.float32))
    writer.flush()
    assert table.priorities() == [2.0, 1.0, 5.0, 3.0]
    assert (writer.num_not_finite, writer.num_dropped_batches) == (0, 0)


def test_sampling_follows(table, writer):
    writer.write(table.keys, np.array([0.0, 1.0, 2.0, 5.0]))
    writer.flush()
    frequencies = np.bincount([number for number, _ in table.sample(2000)], minlength=4)
    expected = 2000 * np.array([1.0, 2.0, 5.0]) / 8.0
    # Chi-square with 2 degrees of freedom: above 27.6 in one of a million runs, and 0 with its
    # priority of 1e-6 is sampled in one of 4000.
    assert ((frequencies[1:] - expected) ** 2 / expected).sum() < 27.6
    assert frequencies[0] <= 1


def test_bounds_apply(table, writer):
    writer.write(table.keys, np.array([1e9, 2e6, 1e6, 3e5]))
    writer.flush()
    assert table.priorities() == [1e6, 1e6, 1e6, 3e5]


@pytest.mark.fault(
    breaks="priorities that are NaN or infinite",
    holds="they reach no table; they are counted",
)
def test_what_is_not_finite_is_skipped_and_counted(table, writer):
    writer.write(table.keys, np.array([np.nan, 2.0, np.inf, 3.0]))
    writer.write(table.keys[:1], np.array([-np.inf]))
    writer.flush()
    assert table.priorities() == [1.0, 2.0, 1.0, 3.0]
    assert (writer.num_not_finite, writer.num_dropped_batches) == (3, 0)


def test_the_last_of_several_values_wins(table, writer):
    writer.write(table.keys[[1, 0, 1, 1]], np.array([2.0, 3.0, 4.0, 5.0]))
    writer.flush()
    assert table.priorities() == [3.0, 5.0, 1.0, 1.0]
    writer.write(table.keys[[1]], np.array([2.0]))
    writer.flush()
    assert table.priorities() == [3.0, 2.0, 1.0, 1.0]


def test_deleted_keys_are_ignored(table, writer):
    old_keys = table.keys
    table.insert(range(4, 6))  # The table holds four: 0 and 1 are removed.
    writer.write(old_keys, np.array([9.0, 8.0, 7.0, 6.0]))
    writer.flush()
    priorities = {number: info.priority for number, info in table.sample(400)}
    # Missing one of them has a probability of (15 / 16) ** 400 = 6e-12 each.
    assert priorities == {2: 7.0, 3: 6.0, 4: 1.0, 5: 1.0}
    assert writer.num_dropped_batches == 0


class SilentClient:
    """A client of a server that does not answer until `answer` is set."""

    def __init__(self):
        self.called = threading.Event()
        self.answer = threading.Event()
        self.updates: list[dict[int, float]] = []

    def mutate_priorities(self, table: str, updates: dict[int, float]) -> None:
        self.called.set()
        self.answer.wait()
        self.updates.append(updates)


def fill(writer: PriorityWriter, client: SilentClient, num_batches: int) -> None:
    """Write batches with the keys 0, 1, 2, ...; the first is on its way, the others wait."""
    writer.write(np.array([0], np.uint64), np.array([1.0]))
    assert client.called.wait(timeout=60)
    for key in range(1, num_batches):
        writer.write(np.array([key], np.uint64), np.array([1.0]))
        assert not client.updates  # It was handed over without waiting for the client.


def test_full_queue_drops_without_blocking():
    client = SilentClient()
    writer = PriorityWriter(client, max_pending_batches=3)
    fill(writer, client, num_batches=10)
    assert writer.num_dropped_batches == 10 - 1 - 3
    client.answer.set()
    writer.flush()
    assert client.updates == [{0: 1.0}, {1: 1.0}, {2: 1.0}, {3: 1.0}]
    writer.close()


@pytest.mark.parametrize("num_batches", [1, 10], ids=["one on its way", "full queue"])
def test_close_does_not_wait_for_an_unreachable_server(num_batches):
    client = SilentClient()
    writer = PriorityWriter(client, max_pending_batches=3)
    fill(writer, client, num_batches)
    closing = threading.Thread(target=writer.close, daemon=True)
    closing.start()
    closing.join(timeout=60)
    assert not closing.is_alive()
    assert not client.updates
    client.answer.set()


class BrokenClient:
    """A client whose connection breaks once."""

    def __init__(self):
        self.updates: list[dict[int, float]] = []
        self._broken = True

    def mutate_priorities(self, table: str, updates: dict[int, float]) -> None:
        if self._broken:
            self._broken = False
            raise RuntimeError("Socket closed")
        self.updates.append(updates)


def test_continues_after_a_broken_connection():
    client = BrokenClient()
    writer = PriorityWriter(client)
    for key in (1, 2):
        writer.write(np.array([key], np.uint64), np.array([1.0]))
    writer.flush()
    writer.close()
    assert client.updates == [{2: 1.0}]
    assert writer.num_dropped_batches == 1


def test_close_writes_what_is_pending(table):
    writer = PriorityWriter(table.client)
    writer.write(table.keys[[0]], np.array([2.0]))
    writer.close()
    wait_for(lambda: table.priorities() == [2.0, 1.0, 1.0, 1.0])
