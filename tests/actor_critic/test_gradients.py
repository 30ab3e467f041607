"""Tests of the queue of gradients, with a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import reverb

from apex_agents.actor_critic.gradients import (
    GRADIENTS,
    Gradient,
    GradientSender,
    make_gradient_dataset,
    make_gradient_table,
)
from apex_agents.replay.flow import DataFlow
from apex_agents.replay.messages import (
    make_evaluation_table,
    make_initial_actor_steps_table,
    make_last_step_table,
)
from apex_agents.replay.statistics import read_statistics

QUEUE_SIZE = 3
FLOW = DataFlow(table=GRADIENTS, transitions_per_item=40)


@pytest.fixture
def client() -> Iterator[reverb.Client]:
    messages = [make_evaluation_table(), make_initial_actor_steps_table(), make_last_step_table()]
    server = reverb.Server([make_gradient_table(2, 1, QUEUE_SIZE), *messages])
    yield reverb.Client(f"localhost:{server.port}")
    server.stop()


def make_sender(client: reverb.Client, first_env: int = 0, **settings) -> GradientSender:
    return GradientSender(client, range(first_env, first_env + 8), 16, 40, **settings)


def send(sender: GradientSender, value: float) -> bool:
    return sender.send(np.array([value, -value], np.float32), np.array([10 * value], np.float32))


def start_waiting(sender: GradientSender, asked: threading.Semaphore) -> threading.Thread:
    """Fill the queue, and start a thread that waits for room; `asked` counts asks to stop.

    A sender asks before it waits, and again each time that it has waited in vain.
    """
    for value in range(QUEUE_SIZE):
        send(sender, value)
    thread = threading.Thread(target=send, args=(sender, 99.0))
    thread.start()
    for _ in range(QUEUE_SIZE + 2):
        assert asked.acquire(timeout=60)
    return thread


def read(client: reverb.Client, number: int) -> list[Gradient]:
    dataset = make_gradient_dataset(client, 2, 1)
    samples = dataset.take(number).as_numpy_iterator()
    return [sample.data for sample in samples]


def test_gradients_arrive_once_and_in_order(client):
    version = 4
    senders = [make_sender(client, 8 * i, learner_steps_fn=lambda: version + 1) for i in range(2)]
    for value, sender in enumerate([senders[1], senders[0], senders[1]]):
        send(sender, value)
    found = read(client, 3)
    assert [gradient.gradient.tolist() for gradient in found] == [[0, 0], [1, -1], [2, -2]]
    assert [gradient.metrics.tolist() for gradient in found] == [[0], [10], [20]]
    assert [int(gradient.worker) for gradient in found] == [8, 0, 8]
    assert {(int(g.version), int(g.num_workers)) for g in found} == {(5, 2)}
    statistics = read_statistics(client, FLOW)
    assert (statistics.inserted, statistics.sampled, statistics.replay_size) == (120, 120, 0)
    assert sum(sender.num_transitions for sender in senders) == 120


def test_a_worker_waits_before_a_full_queue(client):
    asked = threading.Semaphore(0)
    sender = make_sender(client, should_stop=lambda: asked.release())
    waiting = start_waiting(sender, asked)
    assert waiting.is_alive()
    assert [g.gradient[0] for g in read(client, QUEUE_SIZE + 1)] == [0, 1, 2, 99]
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_stopping_program_ends_the_waiting(client):
    is_stopping, asked = False, threading.Semaphore(0)
    sender = make_sender(client, should_stop=lambda: asked.release() or is_stopping)
    waiting = start_waiting(sender, asked)
    is_stopping = True
    waiting.join(60)
    assert not waiting.is_alive()
    sender.close()


def test_a_gradient_that_is_not_finite_is_left_out(client):
    sender = make_sender(client)
    assert [send(sender, value) for value in (float("nan"), 1.0)] == [False, True]
    assert (sender.num_not_finite, sender.num_transitions) == (40, 40)
    assert [g.gradient[0] for g in read(client, 1)] == [1]
