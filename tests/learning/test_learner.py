"""Tests of the learner against a real replay server, with an update that is easy to foresee."""

import collections
import dataclasses
import itertools
import threading
import time

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme.utils import loggers
from numbered_transitions import SPEC, add_transitions, read_priorities
from waiting import TIMEOUT_SECONDS, wait_for

from apex_agents.learning.learner import ApexLearner, ReplaySource, make_update_on_sample
from apex_agents.learning.update import Computed
from apex_agents.metrics.loggers import read_quantities
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.connections import ParameterPublisher, ReplayConnections
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.messages import PARAMETERS, ParameterSource, make_message_tables
from apex_agents.replay.tables import make_transition_table
from apex_agents.replay.transitions import Transition, make_layout

BATCH_SIZE = 64
# Square roots of priorities are 1 and 4: sampled with probabilities 1/5 and 4/5.
REPLAY = ReplayConfig(
    max_size=10,
    min_size=2,
    priority_exponent=0.5,
    importance_sampling_exponent=0.5,
    prefetch_batches=1,
)
LAYOUT = make_layout(SPEC, REPLAY, n_step=1)
RARE, FREQUENT = 10.0, 20.0
PRIORITIES = {RARE: 1.0, FREQUENT: 16.0}


@dataclasses.dataclass
class Config:
    """What the learner reads of an agent's settings."""

    batch_size: int = BATCH_SIZE
    publish_period: int = 1000
    num_sgd_steps_per_step: int = 1
    replay: ReplayConfig = dataclasses.field(default_factory=lambda: REPLAY)


class CountingUpdate:
    """Counts its steps in its only parameter; new priorities are twice the returns.

    Attributes:
      seen: returns and importance weights of the newest batch, `[2, B]`.
    """

    def __init__(self):
        self.count = tf.Variable([0.0])
        self.seen = tf.Variable(np.zeros([2, BATCH_SIZE], np.float32))
        self.num_updates = tf.Variable(0, dtype=tf.int64)
        self.variables = {"network": [self.count]}
        self.state = {"count": self.count, "num_updates": self.num_updates}

    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        self.seen.assign(tf.stack([batch.n_step_return, weights]))
        return Computed(tf.constant([1.0]), 2.0 * batch.n_step_return, {})

    def apply(self, gradients: tf.Tensor) -> dict[str, tf.Tensor]:
        self.count.assign_add(gradients)
        self.num_updates.assign_add(1)
        return {"loss": 100.0 + self.count[0]}


class Replay:
    """A replay server, and the learner that samples from it."""

    def __init__(self, client: reverb.Client):
        self.client = client

    def make_learner(
        self, update: CountingUpdate, config: Config | None = None, **arguments
    ) -> ApexLearner:
        config = config or Config()
        num_batches = config.num_sgd_steps_per_step
        dataset = make_dataset(self.client, REPLAY, BATCH_SIZE, LAYOUT, num_batches)
        self.connections = ReplayConnections(
            self.client, lambda _: dataset, BATCH_SIZE, num_batches
        )
        self.publisher = ParameterPublisher(self.client)
        source = ReplaySource(make_update_on_sample(update, config), self.connections, config)
        return ApexLearner(update, source, self.publisher, config.publish_period, **arguments)

    def num_publications(self) -> int:
        table = self.client.server_info()[PARAMETERS]
        return table.rate_limiter_info.insert_stats.completed


def make_tables() -> list[reverb.Table]:
    return [
        make_transition_table(REPLAY, LAYOUT.signature),
        *make_message_tables(CountingUpdate().variables),
    ]


@pytest.fixture
def replay(serve) -> Replay:
    return Replay(serve(*make_tables()))


def test_weights_correct_for_the_priorities(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES)
    update = CountingUpdate()
    learner = replay.make_learner(update)
    learner.step()
    learner.close()
    weights = collections.defaultdict(set)
    for n_step_return, weight in update.seen.numpy().T.tolist():
        weights[n_step_return].add(weight)
    # N * P is 2 * 1/5 and 2 * 4/5, the weights to the power of -1/2 differ by a factor of 2. That
    # a batch of 64 lacks the rare transition has a probability of 0.8^64 = 6e-7.
    assert {key: sorted(values) for key, values in weights.items()} == {
        RARE: [pytest.approx(1.0)],
        FREQUENT: [pytest.approx(0.5)],
    }


def test_priorities_are_written_back(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES)
    learner = replay.make_learner(CountingUpdate())
    assert read_priorities(replay.client) == {RARE: 1.0, FREQUENT: 16.0}
    learner.step()
    replay.connections.flush()
    learner.close()
    assert read_priorities(replay.client) == {RARE: 2.0 * 10.0, FREQUENT: 2.0 * 20.0}


@pytest.mark.parametrize("shape", [(BATCH_SIZE, 1), (BATCH_SIZE, BATCH_SIZE), ()])
def test_priorities_of_another_shape_are_refused(shape, replay):
    class Misshapen(CountingUpdate):
        def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
            return Computed(tf.constant([1.0]), tf.ones(shape), {})

    add_transitions(replay.client, LAYOUT, PRIORITIES)
    learner = replay.make_learner(Misshapen())
    with pytest.raises(ValueError, match=r"priorities has shape .*; it has to be \(64,\)"):
        learner.step()
    learner.close()


def test_publishes_when_told_to_every_period_and_at_the_end(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES)
    source = ParameterSource(replay.client)
    learner = replay.make_learner(CountingUpdate(), Config(publish_period=2))
    learner.publish()
    replay.publisher.flush()
    assert replay.num_publications() == 1  # Without one, the source below would wait forever.
    published = []
    for _ in range(6):
        ((count,),) = source.get_variables(["network"])
        published.append((replay.num_publications(), source.learner_steps, count.tolist()))
        learner.step()
        replay.publisher.flush()
    assert published == [
        (1, 0, [0.0]),
        (1, 0, [0.0]),
        (2, 2, [2.0]),
        (2, 2, [2.0]),
        (3, 4, [4.0]),
        (3, 4, [4.0]),
    ]
    learner.step()
    learner.close()
    wait_for(lambda: replay.num_publications() == 5)
    ((count,),) = source.get_variables(["network"])
    assert (source.learner_steps, count.tolist()) == (7, [7.0])


def test_several_updates_per_call(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES)
    update = CountingUpdate()
    learner = replay.make_learner(update, Config(num_sgd_steps_per_step=4, publish_period=6))
    published = []
    for _ in range(4):
        learner.step()
        replay.publisher.flush()
        published.append((learner.num_steps, replay.num_publications()))
    assert update.count.numpy().tolist() == [16.0]
    assert published == [(4, 0), (8, 1), (12, 2), (16, 2)]
    assert read_priorities(replay.client) == {RARE: 2.0 * RARE, FREQUENT: 2.0 * FREQUENT}
    quantities, weights = read_quantities(learner.recent_samples)
    assert {len(column) for column in (*quantities.values(), weights)} == {4 * 4 * BATCH_SIZE}
    learner.close()


def test_recent_samples_are_those_of_the_newest_batches(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES)
    learner = replay.make_learner(CountingUpdate())
    for _ in range(20):
        learner.step()
    num_samples = len(read_quantities(learner.recent_samples)[1])
    learner.step()
    assert len(read_quantities(learner.recent_samples)[1]) == num_samples < 20 * BATCH_SIZE
    learner.close()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.fault(
    breaks="parameters that became NaN or infinite",
    holds="the learner fails; they are neither published nor saved",
)
def test_parameters_that_are_not_finite_go_nowhere(value, replay):
    update = CountingUpdate()
    learner = replay.make_learner(update)
    update.count.assign([value])
    with pytest.raises(FloatingPointError):
        learner.publish()
    replay.publisher.flush()
    assert replay.num_publications() == 0
    update.count.assign([1.0])
    learner.close()


def test_a_learner_that_waits_hears_that_its_parameters_do_not_fit(serve):
    others = make_message_tables({"network": [tf.Variable([0.0, 0.0])]})
    replay = Replay(serve(make_transition_table(REPLAY, LAYOUT.signature), *others))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    learner = replay.make_learner(CountingUpdate(), should_stop=lambda: time.monotonic() > deadline)
    learner.publish()
    with pytest.raises(ValueError, match="table 'parameters'"):
        learner.step()


def test_get_variables_returns_copies(replay):
    update = CountingUpdate()
    learner = replay.make_learner(update)
    (variables,) = learner.get_variables(["network"])
    update.count.assign([5.0])
    assert [array.tolist() for array in variables] == [[0.0]]
    assert [array.tolist() for array in learner.get_variables(["network"])[0]] == [[5.0]]
    learner.close()


def test_logs_what_every_step_did(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES)
    logger = loggers.InMemoryLogger()
    config = Config(num_sgd_steps_per_step=2)
    learner = replay.make_learner(CountingUpdate(), config, logger=logger)
    for _ in range(3):
        learner.step()
    learner.close()
    # The loss of step n is 100 + n, its samples are n - 1 learner steps old.
    for row, steps in zip(logger.data, (2, 4, 6), strict=True):
        assert 0 <= row.pop("waiting_seconds") < 60
        assert row == {
            "learner_steps": steps,
            "loss": 99.5 + steps,
            "sample_age_steps": steps - 1.5,
            "num_updates": 2,
            "priorities_at_bound_fraction": 0.0,
            "priorities_not_finite": 0,
            "priority_batches_dropped": 0,
        }


def test_logs_the_share_of_new_priorities_at_a_bound(replay):
    class LargeForFrequent(CountingUpdate):
        def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
            computed = super().compute(batch, weights)
            is_large = batch.n_step_return == FREQUENT
            return computed._replace(priorities=tf.where(is_large, 1e7, 1.0))

    add_transitions(replay.client, LAYOUT, PRIORITIES)
    logger = loggers.InMemoryLogger()
    update = LargeForFrequent()
    learner = replay.make_learner(update, logger=logger)
    learner.step()
    learner.close()
    num_large = np.count_nonzero(update.seen[0] == FREQUENT)
    assert 0 < num_large < BATCH_SIZE  # One of them is missing once in a million runs.
    assert logger.data[0]["priorities_at_bound_fraction"] == num_large / BATCH_SIZE


def test_recent_samples_hold_priorities_and_ages(replay):
    add_transitions(replay.client, LAYOUT, PRIORITIES, learner_steps=3)
    update, logger = CountingUpdate(), loggers.InMemoryLogger()
    learner = replay.make_learner(update, logger=logger)
    update.num_updates.assign(10)
    learner.resume()
    assert learner.num_steps == 10
    learner.step()
    assert learner.num_steps == 11
    assert [row["learner_steps"] for row in logger.data] == [11]
    quantities, weights = read_quantities(learner.recent_samples)
    learner.close()
    assert {len(column) for column in (*quantities.values(), weights)} == {BATCH_SIZE}
    assert set(quantities["age_steps"].tolist()) == {10 - 3}
    priorities = quantities["priority"]
    assert set(zip(priorities.tolist(), quantities["td_error"].tolist(), strict=True)) == {
        (1.0, 2.0 * RARE),
        (16.0, 2.0 * FREQUENT),
    }
    # Sampled with probability 1/5 and 4/5, one of two each.
    weight = dict(zip(priorities.tolist(), weights.tolist(), strict=True))
    assert weight == {1.0: pytest.approx(5 / 2), 16.0: pytest.approx(5 / 8)}
    # Each row holds how often its transition had been sampled by then: as often as it is here at
    # least, and not more than in all batches, of which one may have been prefetched.
    for priority in (1.0, 16.0):
        counts = quantities["times_sampled"][priorities == priority]
        assert counts.min() >= 1
        assert len(counts) <= counts.max() <= BATCH_SIZE * 2


def test_a_step_without_data_ends_when_told_to_stop(replay):
    add_transitions(replay.client, LAYOUT, {RARE: 1.0})  # One less than `min_size`.
    answers = itertools.chain([False] * 2, itertools.repeat(True))
    update = CountingUpdate()
    learner = replay.make_learner(update, should_stop=lambda: next(answers))
    thread = threading.Thread(target=learner.step, daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert (learner.num_steps, update.count.numpy().tolist()) == (0, [0.0])
    assert replay.num_publications() == 0
    learner.close()


def test_learns_as_soon_as_the_limiter_allows(replay):
    add_transitions(replay.client, LAYOUT, {RARE: 1.0})
    asked = []

    def add_after_second_question() -> bool:
        asked.append(True)
        if len(asked) == 2:
            add_transitions(replay.client, LAYOUT, {FREQUENT: 16.0})
        return False

    learner = replay.make_learner(CountingUpdate(), should_stop=add_after_second_question)
    learner.step()
    assert learner.num_steps == 1
    learner.close()
