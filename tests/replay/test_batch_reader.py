"""Tests of reading batches in the background."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf
from waiting import wait_for

from apex_agents.replay.batch_reader import BatchReader


def make_counting_dataset(length: int) -> tf.data.Dataset:
    """Make a dataset that ends, as one does whose limiter lets nothing through."""
    return tf.data.Dataset.range(length)


def test_batches_arrive_in_order_and_once():
    reader = BatchReader(make_counting_dataset(1000))
    assert [int(reader.next()) for _ in range(1000)] == list(range(1000))
    reader.close()


def test_begins_again_after_the_end():
    reader = BatchReader(make_counting_dataset(3))
    assert [int(reader.next()) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    reader.close()


def test_parts_of_batches_are_put_together():
    # 0 1 2, 3 4 and again.
    reader = BatchReader(make_counting_dataset(5).batch(3), batch_size=3)
    batches = [reader.next().numpy().tolist() for _ in range(6)]
    whole = [0, 1, 2]
    assert batches == [whole, whole, [3, 4, 3], whole, [4, 3, 4], whole]
    reader.close()


def test_reads_nothing_before_it_is_asked():
    seen = []

    def note(number: int) -> int:
        seen.append(int(number))
        return number

    dataset = make_counting_dataset(9).map(lambda n: tf.py_function(note, [n], tf.int64))
    threads = set(threading.enumerate())
    reader = BatchReader(dataset)
    assert set(threading.enumerate()) <= threads
    assert seen == []
    assert int(reader.next()) == 0
    reader.close()


@pytest.fixture
def stuck():
    """A dataset whose first batch does not come, as from an unreachable server."""
    gate = threading.Event()

    def wait(number: int) -> int:
        gate.wait()
        return number

    yield make_counting_dataset(9).map(lambda n: tf.py_function(wait, [n], tf.int64))
    gate.set()


def test_stops_waiting_when_told_to(stuck):
    reader = BatchReader(stuck)
    answers = iter([False, False, True])
    assert reader.next(lambda: next(answers)) is None


def test_closing_does_not_wait_for_ever(stuck):
    reader = BatchReader(stuck)
    assert reader.next(iter([False, True]).__next__) is None
    closing = threading.Thread(target=reader.close, daemon=True)
    closing.start()
    closing.join(timeout=60)
    assert not closing.is_alive()


def test_an_error_reaches_the_caller():
    def fail(number: int) -> int:
        raise OSError("no such table")

    dataset = make_counting_dataset(9).map(lambda n: tf.py_function(fail, [n], tf.int64))
    reader = BatchReader(dataset)
    for _ in range(2):
        with pytest.raises(tf.errors.OpError, match="no such table"):
            reader.next()


def test_its_thread_ends_with_it():
    threads = set(threading.enumerate())
    reader = BatchReader(make_counting_dataset(9))
    reader.next()
    assert not set(threading.enumerate()) <= threads
    reader.close()
    wait_for(lambda: set(threading.enumerate()) <= threads)
