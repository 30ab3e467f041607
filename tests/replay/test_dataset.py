"""Tests of the batches that the learner reads, from a real Reverb server."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf
from dm_env import specs
from waiting import wait_for

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.dataset import BatchReader, make_dataset
from apex_agents.replay.layout import Layout
from apex_agents.replay.tables import TRANSITIONS, make_transition_table
from apex_agents.replay.transitions import make_layout

CONFIG = ReplayConfig(max_size=1000, min_size=8, prefetch_batches=2)
STACK = specs.Array((3, 4, 5), np.uint8)
VECTOR = specs.Array((6,), np.float32)
DISCRETE = specs.DiscreteArray(18)
BOX = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


def make_spec(observation_spec: specs.Array, action_spec: specs.Array) -> EnvironmentSpec:
    return EnvironmentSpec(observation_spec, action_spec, rewards=None, discounts=None)


def layout_of(spec: EnvironmentSpec, frame_stack: int = 0) -> Layout:
    return make_layout(spec, CONFIG, 1, frame_stack)


FRAMES = layout_of(make_spec(STACK, DISCRETE), frame_stack=3)
VECTORS = layout_of(make_spec(VECTOR, DISCRETE))


def make_table(layout: Layout) -> reverb.Table:
    return make_transition_table(CONFIG, layout.signature)


def add(client: reverb.Client, layout: Layout, observations: list, actions: Sequence) -> None:
    """Record one truncated episode with n = 1, gamma = 0.5 and the k-th reward 2 * k."""
    adder = PrioritizedNStepAdder(client, layout, CONFIG, 1, 0.5)
    last = len(observations) - 1
    for k, (observation, action) in enumerate(zip(observations, [*actions, actions[0]])):  # noqa: B905
        step_type = dm_env.StepType.LAST if k == last else dm_env.StepType(min(k, 1))
        timestep = dm_env.TimeStep(step_type, 2.0 * k, 1.0, observation)
        adder.add(timestep, PolicyOutput(np.asarray(action), np.float32(0), np.float32(0)))
    adder.close()


def test_batches_of_stacked_frames_and_discrete_actions(serve):
    client = serve(make_table(FRAMES))
    # Frame k is full of k; observation k shows the frames k, k + 1, k + 2.
    observations = [
        np.stack([np.full((4, 5), frame, np.uint8) for frame in range(k, k + 3)]) for k in range(18)
    ]
    add(client, FRAMES, observations, list(range(17)))
    batch = next(iter(make_dataset(client, CONFIG, 16, FRAMES)))
    data = batch.data
    assert (data.observation.shape, data.observation.dtype) == ((16, 3, 4, 5), np.uint8)
    assert (data.next_observation.shape, data.next_observation.dtype) == ((16, 3, 4, 5), np.uint8)
    assert (data.action.shape, data.action.dtype) == ((16,), np.int32)
    assert (data.n_step_return.shape, data.n_step_return.dtype) == ((16,), np.float32)
    assert (data.n_step_discount.shape, data.n_step_discount.dtype) == ((16,), np.float32)
    for k, observation, n_step_return, n_step_discount, next_observation in zip(
        data.action.numpy(),
        data.observation.numpy(),
        data.n_step_return.numpy(),
        data.n_step_discount.numpy(),
        data.next_observation.numpy(),
        strict=True,
    ):
        np.testing.assert_array_equal(observation, observations[k])
        np.testing.assert_array_equal(next_observation, observations[k + 1])
        assert (n_step_return, n_step_discount) == (2 * (k + 1), 0.5)


def test_batches_of_images_that_are_no_stacks(serve):
    layout = layout_of(make_spec(STACK, DISCRETE))
    client = serve(make_table(layout))
    observations = [np.full(STACK.shape, k, np.uint8) for k in range(18)]
    add(client, layout, observations, list(range(17)))
    data = next(iter(make_dataset(client, CONFIG, 16, layout))).data
    for field, offset in ((data.observation, 0), (data.next_observation, 1)):
        assert (field.shape, field.dtype) == ((16, 3, 4, 5), np.uint8)
        for k, observation in zip(data.action.numpy(), field.numpy(), strict=True):
            np.testing.assert_array_equal(observation, observations[k + offset])


def test_info_of_a_batch(serve):
    client = serve(make_table(FRAMES))
    add(client, FRAMES, [np.zeros(STACK.shape, np.uint8)] * 9, [0] * 8)
    info = next(iter(make_dataset(client, CONFIG, 4, FRAMES))).info
    assert (info.key.shape, info.key.dtype) == ((4,), np.uint64)
    assert info.table_size.numpy().tolist() == [8] * 4
    # With q and values of 0 the priorities are the rewards 2, 4, ..., 16.
    total = sum(p**0.6 for p in (2, 4, 6, 8, 10, 12, 14, 16))
    np.testing.assert_allclose(info.probability, info.priority.numpy() ** 0.6 / total)


def test_batches_of_vectors(serve):
    layout = layout_of(make_spec(VECTOR, BOX))
    client = serve(make_table(layout))
    observations = [np.arange(6, dtype=np.float32) + 0.1 * k for k in range(10)]
    actions = [np.array([0.1 * k, -0.3], np.float32) for k in range(9)]
    add(client, layout, observations, actions)
    data = next(iter(make_dataset(client, CONFIG, 16, layout))).data
    assert (data.observation.shape, data.observation.dtype) == ((16, 6), np.float32)
    assert (data.next_observation.shape, data.next_observation.dtype) == ((16, 6), np.float32)
    assert (data.action.shape, data.action.dtype) == ((16, 2), np.float32)
    for row, n_step_return in enumerate(data.n_step_return.numpy()):
        k = int(n_step_return) // 2 - 1
        np.testing.assert_array_equal(data.observation[row], observations[k])
        np.testing.assert_array_equal(data.next_observation[row], observations[k + 1])
        np.testing.assert_array_equal(data.action[row], actions[k])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_whole_numbers_come_back_in_their_dtype(dtype, serve):
    actions = specs.DiscreteArray(10, dtype=np.int64)
    layout = layout_of(make_spec(specs.BoundedArray((2,), dtype, 0, 255), actions))
    client = serve(make_table(layout))
    add(client, layout, [np.array([k, 255 - k], dtype) for k in range(10)], list(range(9)))
    data = next(iter(make_dataset(client, CONFIG, 16, layout))).data
    assert data.observation.dtype == data.next_observation.dtype == dtype
    assert data.action.dtype == np.int64
    expected = [[k, 255 - k] for k in data.action.numpy()]
    np.testing.assert_array_equal(data.observation, expected)
    np.testing.assert_array_equal(data.next_observation, np.array(expected) + [1, -1])


def test_iterator_ends_when_nothing_comes_and_a_new_one_works(serve):
    client = serve(make_table(VECTORS))
    dataset = make_dataset(client, CONFIG, 4, VECTORS)
    with pytest.raises(StopIteration):
        next(iter(dataset))
    add(client, VECTORS, [np.zeros(6, np.float32)] * 9, [0] * 8)
    iterator = iter(dataset)
    for _ in range(5):
        assert next(iterator).data.action.shape == (4,)


def test_transitions_that_come_too_slowly_for_a_batch_are_not_lost(serve):
    # Every transition can be sampled once: 8 make two batches of 3, and 2 are left when the
    # iterator ends.
    limiter = reverb.rate_limiters.Queue(9)
    client = serve(make_table(VECTORS).replace(rate_limiter=limiter, max_times_sampled=1))
    add(client, VECTORS, [np.zeros(6, np.float32)] * 9, range(8))
    dataset = make_dataset(client, CONFIG, 3, VECTORS)
    reader = BatchReader(dataset, batch_size=3)
    batches = [read(reader) for _ in range(2)]
    wait_for(lambda: num_sampled(client) == 8)
    add(client, VECTORS, [np.zeros(6, np.float32)] * 2, [8])
    batches.append(read(reader))
    assert [len(batch.info.key) for batch in batches] == [3, 3, 3]
    actions = np.concatenate([batch.data.action for batch in batches])
    assert sorted(actions.tolist()) == list(range(9))
    reader.close()


def read(reader: BatchReader) -> Any:
    """Wait for the next batch."""
    while (batch := reader.poll(0.1)) is None:
        """It is being read."""
    return batch


def num_sampled(client: reverb.Client) -> int:
    return client.server_info()[TRANSITIONS].rate_limiter_info.sample_stats.completed


@pytest.mark.parametrize("prefetch_batches", [4, 16])
def test_as_many_batches_are_read_ahead_as_configured(prefetch_batches, serve):
    client = serve(make_table(VECTORS))
    add(client, VECTORS, [np.zeros(6, np.float32)] * 101, [0] * 100)
    config = dataclasses.replace(CONFIG, prefetch_batches=prefetch_batches)
    reader = BatchReader(make_dataset(client, config, 10, VECTORS))
    assert read(reader) is not None
    # Besides the one taken out, and a part of another one that is being put together.
    wait_for(lambda: num_sampled(client) // 10 >= 1 + prefetch_batches)
    for _ in range(200):  # Without a limit hundreds would follow meanwhile.
        assert num_sampled(client) // 10 == 1 + prefetch_batches
    reader.close()


def test_batches_that_are_handed_over_together_count_among_those_read_ahead(serve):
    client = serve(make_table(VECTORS))
    add(client, VECTORS, [np.zeros(6, np.float32)] * 101, [0] * 100)
    config = dataclasses.replace(CONFIG, prefetch_batches=16)
    dataset = make_dataset(client, config, 10, VECTORS, 4)
    reader = BatchReader(dataset)
    assert read(reader) is not None
    # Samples of 40: besides the one taken out four, of which the server gives two in one go.
    wait_for(lambda: num_sampled(client) // 40 >= 4)
    for _ in range(200):  # 16 samples would be four times as many.
        assert num_sampled(client) // 40 <= 1 + 4 + 2
    reader.close()


def make_counting_dataset(length: int) -> tf.data.Dataset:
    """Make a dataset that ends, as one does whose limiter lets nothing through."""
    return tf.data.Dataset.range(length)


def test_batches_arrive_in_order_and_once():
    reader = BatchReader(make_counting_dataset(1000))
    assert [int(read(reader)) for _ in range(1000)] == list(range(1000))
    reader.close()


def test_parts_of_batches_are_put_together():
    # 0 1 2, 3 4 and again.
    reader = BatchReader(make_counting_dataset(5).batch(3), batch_size=3)
    batches = [read(reader).numpy().tolist() for _ in range(6)]
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
    assert int(read(reader)) == 0
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


def test_closing_does_not_wait_for_ever(stuck):
    reader = BatchReader(stuck)
    assert reader.poll(0.1) is None
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
            read(reader)


def test_its_thread_ends_with_it():
    threads = set(threading.enumerate())
    reader = BatchReader(make_counting_dataset(9))
    read(reader)
    assert not set(threading.enumerate()) <= threads
    reader.close()
    wait_for(lambda: set(threading.enumerate()) <= threads)


def test_a_reader_that_is_closed_gives_nothing():
    reader = BatchReader(make_counting_dataset(9))
    read(reader)
    reader.close()
    assert [reader.poll(0.0) for _ in range(3)] == [None] * 3
