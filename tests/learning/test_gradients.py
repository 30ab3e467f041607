"""Tests of the queue of gradients with a real server, and of what is learned from which of them."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import documented_logs
import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme.utils import loggers

from apex_agents.actor_critic.learning import METRICS
from apex_agents.learning.gradients import (
    GRADIENTS,
    Gradient,
    GradientSender,
    GradientSource,
    from_vector,
    make_gradient_dataset,
    make_gradient_table,
    to_vector,
)
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.update import Computed
from apex_agents.metrics.statistics import read_statistics
from apex_agents.replay.connections import Sample
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.tables import DataFlow

QUEUE_SIZE = 3
FLOW = DataFlow(table=GRADIENTS)


@pytest.fixture
def client() -> Iterator[reverb.Client]:
    server = reverb.Server([make_gradient_table(2, 1, QUEUE_SIZE), *make_message_tables({})])
    yield reverb.Client(f"localhost:{server.port}")
    server.stop()


def make_sender(client: reverb.Client, first_env: int = 0, **settings) -> GradientSender:
    return GradientSender(client, range(first_env, first_env + 8), 16, **settings)


def send(sender: GradientSender, value: float) -> bool:
    return sender.send(np.array([value, -value], np.float32), np.array([10 * value], np.float32))


def start_waiting(sender: GradientSender, asked: threading.Semaphore) -> threading.Thread:
    """Fill the queue, and start a thread that waits for room; `asked` counts asks to stop.

    A sender asks before it waits, and again each time that it has waited in vain. It does not wait
    for its newest gradient to arrive.
    """
    for value in range(QUEUE_SIZE + 1):
        send(sender, value)
    thread = threading.Thread(target=send, args=(sender, 99.0))
    thread.start()
    for _ in range(QUEUE_SIZE + 3):
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
        sender.flush()  # Those of different senders would arrive in any order.
    found = read(client, 3)
    assert [gradient.gradient.tolist() for gradient in found] == [[0, 0], [1, -1], [2, -2]]
    assert [gradient.metrics.tolist() for gradient in found] == [[0], [10], [20]]
    assert [int(gradient.worker) for gradient in found] == [8, 0, 8]
    assert {(int(g.version), int(g.num_workers)) for g in found} == {(5, 2)}
    statistics = read_statistics(client, FLOW)
    assert (statistics.inserted, statistics.sampled, statistics.replay_size) == (3, 3, 0)
    # The second one sent gradients of 0 and 20 steps.
    assert [(sender.num_items, sender.num_steps) for sender in senders] == [(1, 10), (2, 20)]


def test_gradients_in_bfloat16_have_half_the_bytes():
    size = 3
    server = reverb.Server([make_gradient_table(size, 1, QUEUE_SIZE, bfloat16=True)])
    client = reverb.Client(f"localhost:{server.port}")
    # 8 bits of precision: 1 + 2^-8 is between two numbers, and rounds to the even one.
    gradient = np.array([1 + 2**-8, -3e-9, 1e30], np.float32)
    too_large = np.array([0, 0, 3.4e38], np.float32)  # It is rounded to infinity.
    sender = make_sender(client, bfloat16=True)
    assert sender.send(gradient, np.array([10], np.float32))
    assert not sender.send(too_large, np.array([10], np.float32))
    sender.close()
    ((name, info),) = client.server_info().items()
    assert info.signature["gradient"].dtype == tf.uint16
    assert name != GRADIENTS  # A saved replay with the other queue is not taken for this one.
    dataset = make_gradient_dataset(client, size, 1, bfloat16=True)
    sent, left_out = (sample.data.gradient for sample in dataset.take(2).as_numpy_iterator())
    server.stop()
    assert (sent.dtype, sent[0]) == (np.float32, 1.0)
    np.testing.assert_allclose(sent, gradient, rtol=2**-8)
    assert left_out.tolist() == [0, 0, 0]


def test_a_worker_waits_before_a_full_queue(client):
    asked = threading.Semaphore(0)
    sender = make_sender(client, should_stop=lambda: asked.release())
    waiting = start_waiting(sender, asked)
    assert waiting.is_alive()
    assert [g.gradient[0] for g in read(client, QUEUE_SIZE + 2)] == [0, 1, 2, 3, 99]
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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_one_of_no_steps(bad, client):
    sender = make_sender(client)
    is_sent = sender.send(np.array([bad, 1], np.float32), np.array([20], np.float32))
    assert (is_sent, send(sender, 1.0)) == (False, True)
    assert (sender.num_not_finite, sender.num_steps, sender.num_items) == (20, 10, 2)
    found = [(g.gradient.tolist(), g.metrics.tolist()) for g in read(client, 2)]
    assert found == [([0, 0], [0]), ([1, -1], [10])]


SIZE = 3


class Descent:
    """Moves two parameters, `[1]` and `[2]`, by their gradients.

    Attributes:
      num_calls: calls of `apply` from Python, one for each time that it is compiled.
    """

    def __init__(self) -> None:
        self.trained = (tf.Variable([0.0]), [tf.Variable([0.0, 0.0])])
        self.num_updates = tf.Variable(0, dtype=tf.int64)
        self.variables = {"network": [self.trained[0], *self.trained[1]]}
        self.state = {"network": self.trained[0], "num_updates": self.num_updates}
        self.num_calls = 0

    def compute(self, batch: Any, weights: tf.Tensor) -> Computed:
        raise NotImplementedError  # Workers do.

    def apply(self, gradients: Any) -> dict[str, tf.Tensor]:
        self.num_calls += 1
        first, (second,) = gradients
        self.trained[0].assign(first)
        self.trained[1][0].assign(second)
        self.num_updates.assign_add(1)
        return {"gradient_norm": tf.norm(first), "steps_skipped": tf.constant(0, tf.int64)}


class Replays:
    """Stands for the connections: gives out gradients as they are added."""

    def __init__(self) -> None:
        self._samples: queue.Queue = queue.Queue()

    def sample(self, should_stop: Callable[[], bool]) -> Sample | None:
        while not should_stop():
            with contextlib.suppress(queue.Empty):
                return self._samples.get(timeout=0.02)
        return None

    def close(self) -> None:
        """Do nothing."""

    def add(
        self, worker: int, version: int, value: float = 0.0, num_workers: int = 2, steps: float = 5
    ) -> None:
        gradient = Gradient(
            np.full(SIZE, value, np.float32),
            np.array([steps, *[value] * (len(METRICS) - 1)], np.float32),
            *(np.asarray(number, np.int64) for number in (version, worker, num_workers)),
        )
        batches = reverb.ReplaySample(None, Gradient(*map(tf.constant, gradient)))
        self._samples.put(Sample(batches, ()))


class Publications:
    """Stands for the publisher.

    Attributes:
      versions: those that are published.
    """

    def __init__(self) -> None:
        self.versions: list[int] = []

    def publish(self, variables: Any, learner_steps: int) -> None:
        self.versions.append(learner_steps)

    def check(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Rows(loggers.Logger):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, data):
        self.rows.append(data)

    def close(self):
        """Do nothing."""


class Parts:
    def __init__(self, max_wait_seconds: float | None):
        self.replays, self.published, self.logger = Replays(), Publications(), Rows()
        self.update = Descent()
        self.is_stopping = False
        self.source = GradientSource(
            self.update,
            self.replays,  # type: ignore[arg-type]
            METRICS,
            max_wait_seconds,
        )
        self.learner = ApexLearner(
            self.update,
            self.source,
            self.published,  # type: ignore[arg-type]
            logger=self.logger,
            should_stop=lambda: self.is_stopping,
        )

    def step(self) -> tuple[float, float]:
        """Let the learner step; return the mean that it applied, and of how many gradients."""
        self.learner.step()
        values = np.concatenate([variable.numpy() for variable in self.update.variables["network"]])
        assert values.tolist() == [values[0]] * SIZE
        return float(values[0]), self.logger.rows[-1]["gradients_per_step"]


@pytest.fixture
def make_parts() -> Iterator[Any]:
    made = []

    def make(max_wait_seconds: float | None) -> Parts:
        made.append(Parts(max_wait_seconds))
        return made[-1]

    yield make
    for parts in made:
        parts.learner.close()


LONG = 1000.0  # Seconds that an update of A2C would wait for.


def test_the_update_is_compiled_before_workers_get_parameters(make_parts):
    parts = make_parts(LONG)
    assert parts.published.versions == []
    assert parts.update.num_calls == 1
    assert int(parts.update.num_updates) == 0
    for num_workers in (1, 3):
        for worker in range(num_workers):
            parts.replays.add(worker, parts.learner.num_steps, num_workers=num_workers)
        parts.learner.step()
    assert parts.update.num_calls == 1
    assert int(parts.update.num_updates) == 2


def test_a2c_applies_one_gradient_of_each_worker(make_parts):
    parts = make_parts(LONG)
    for value, (worker, version) in enumerate([(8, 0), (0, 0), (0, 1), (8, 1)]):
        parts.replays.add(worker, version, 0.1 * value, steps=5 - value % 2)
    # Each counts as many times as its rollout has steps.
    assert parts.step() == (pytest.approx((5 * 0.0 + 4 * 0.1) / 9), 2)
    assert parts.step() == (pytest.approx((5 * 0.2 + 4 * 0.3) / 9), 2)
    assert parts.published.versions == [1, 2]
    assert parts.learner.num_steps == 2
    row = parts.logger.rows[-1]
    assert row["learner_steps"] == 2
    assert row["staleness_steps"] == 0 and row["gradients_per_step"] == 2
    assert row["loss"] == pytest.approx((5 * 0.2 + 4 * 0.3) / 9)
    assert parts.learner.recent_samples is None  # All of them have the update's parameters.


def test_metrics_are_the_documented_columns(make_parts):
    parts = make_parts(None)
    parts.replays.add(0, 0)
    parts.learner.step()
    added_by_the_logger = {
        "learner_steps_per_second",
        "data_wait_fraction",
        "actor_steps",
        "replay_size",
        "samples_per_insert",
        "wall_time_seconds",
    }
    documented = documented_logs.columns("learner", "a2c") - added_by_the_logger
    assert parts.logger.rows[-1].keys() - {"num_updates", "waiting_seconds"} == documented


def test_a2c_leaves_out_gradients_of_other_versions(make_parts):
    parts = make_parts(LONG)
    parts.learner.num_steps = 7
    for worker, version in [(0, 6), (0, 7), (8, 8), (8, 7)]:
        parts.replays.add(worker, version, version)
    assert parts.step() == (7.0, 2)
    assert parts.logger.rows[-1]["gradients_dropped"] == 2


def test_a2c_goes_on_without_a_worker_until_it_is_back(make_parts):
    parts = make_parts(0.05)
    numbers = []
    for version in range(3):
        parts.replays.add(0, version)
        numbers.append(parts.step()[1])
    for worker, version in [(8, 1), (0, 3), (8, 3)]:
        parts.replays.add(worker, version)
    assert [*numbers, parts.step()[1]] == [1, 1, 1, 2]


def test_a2c_takes_the_newest_gradient_of_a_worker_that_was_restarted(make_parts):
    parts = make_parts(LONG)
    for worker, value in [(0, 1.0), (0, 2.0), (8, 3.0)]:
        parts.replays.add(worker, 0, value)
    assert parts.step() == (2.5, 2)


def test_a3c_applies_each_gradient(make_parts):
    parts = make_parts(None)
    parts.learner.num_steps = 10
    for worker, version in [(0, 10), (8, 8), (0, 7)]:
        parts.replays.add(worker, version, version)
    assert [parts.step() for _ in range(3)] == [(10.0, 1), (8.0, 1), (7.0, 1)]
    assert [row["staleness_steps"] for row in parts.logger.rows] == [0.0, 3.0, 5.0]
    assert list(parts.learner.recent_samples) == [0, 3, 5]
    assert parts.published.versions == [11, 12, 13]


def test_gradients_from_before_a_learner_was_restarted_are_not_stale(make_parts):
    parts = make_parts(None)
    parts.learner.num_steps = 10  # Its checkpoint has this step.
    parts.replays.add(0, 12)
    parts.learner.step()
    assert parts.logger.rows[-1]["staleness_steps"] == 0.0


@pytest.mark.parametrize("max_wait_seconds", [LONG, None])
def test_without_gradients_it_stops_when_told_to(make_parts, max_wait_seconds):
    parts = make_parts(max_wait_seconds)
    parts.is_stopping = True
    parts.learner.step()
    assert parts.learner.num_steps == 0 and not parts.logger.rows


def test_vectors_hold_gradients_of_a_nest_in_its_order():
    trained = Descent().trained
    vector = to_vector((None, [tf.constant([2.0, 3.0])]), trained)
    assert vector.numpy().tolist() == [0.0, 2.0, 3.0]  # The loss does not depend on the first.
    first, (second,) = from_vector(tf.constant([1.0, 2.0, 3.0]), trained)
    assert (first.numpy().tolist(), second.numpy().tolist()) == ([1.0], [2.0, 3.0])
