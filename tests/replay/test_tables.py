"""Tests of the tables on a real Reverb server: who is sampled, who leaves, who has to wait."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import reverb
import tensorflow as tf

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import (
    EVALUATION,
    PARAMETERS,
    Evaluation,
    make_evaluation_table,
    make_parameter_table,
)
from apex_agents.replay.parameters import publish_parameters
from apex_agents.replay.statistics import report_evaluation
from apex_agents.replay.tables import TRANSITIONS, make_transition_table

NUMBER = tf.TensorSpec([], tf.int64)


def insert(client: reverb.Client, numbers: range, priority: float = 1.0) -> bool:
    """Insert items that hold a number; return whether all of them were accepted in a second."""
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    for number in numbers:
        writer.append(np.int64(number))
        writer.create_item(TRANSITIONS, priority, writer.history[-1])
    try:
        writer.flush(timeout_ms=1000)
    except reverb.errors.DeadlineExceededError:
        return False
    return True


def sample(client: reverb.Client, num_samples: int = -1) -> list[int]:
    """Sample so many items, or until the limiter lets nothing through for half a second."""
    dataset = reverb.TrajectoryDataset.from_table_signature(
        server_address=client.server_address,
        table=TRANSITIONS,
        max_in_flight_samples_per_worker=max(min(num_samples, 1000), 1),
        num_workers_per_iterator=1,
        max_samples=num_samples,
        rate_limiter_timeout_ms=500,
    )
    return [int(number) for batch in dataset.batch(1000) for number in batch.data.numpy()]


def counts(client: reverb.Client) -> tuple[int, int]:
    """Return how many items were inserted, and how many sampled."""
    limiter = client.server_info()[TRANSITIONS].rate_limiter_info
    return limiter.insert_stats.completed, limiter.sample_stats.completed


NUM_SAMPLES = 20_000
# The chi-square statistic of five frequencies has 4 degrees of freedom: a right table exceeds 33.4
# in one of a million runs. Exponent 0.5 instead of 0.6 would give about 360.
CHI_SQUARE_BOUND = 33.4


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (0.6, [0.05**0.6, 0.2**0.6, 1.0**0.6, 2.5**0.6, 8.0**0.6]),
        (1.0, [0.05, 0.2, 1.0, 2.5, 8.0]),
        (0.0, [1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_sampling_frequencies(exponent, expected, serve):
    config = ReplayConfig(max_size=10, min_size=5, priority_exponent=exponent)
    client = serve(make_transition_table(config, NUMBER))
    for number, priority in enumerate([0.05, 0.2, 1.0, 2.5, 8.0]):
        insert(client, range(number, number + 1), priority)
    frequencies = np.bincount(sample(client, NUM_SAMPLES), minlength=5)
    expected = NUM_SAMPLES * np.array(expected) / sum(expected)
    assert frequencies.sum() == NUM_SAMPLES
    assert ((frequencies - expected) ** 2 / expected).sum() < CHI_SQUARE_BOUND


def test_reported_probability_and_size(serve):
    client = serve(make_transition_table(ReplayConfig(max_size=10, min_size=3), NUMBER))
    for number, priority in enumerate([0.5, 1.0, 4.0]):
        insert(client, range(number, number + 1), priority)
    total = 0.5**0.6 + 1.0**0.6 + 4.0**0.6
    probabilities = np.array([0.5**0.6, 1.0**0.6, 4.0**0.6]) / total
    for item in client.sample(
        TRANSITIONS, 50, emit_timesteps=False, unpack_as_table_signature=True
    ):
        assert item.info.probability == pytest.approx(probabilities[int(item.data)])
        assert item.info.table_size == 3


def test_the_oldest_leaves_a_full_table_whatever_its_priority(serve):
    client = serve(make_transition_table(ReplayConfig(max_size=4, min_size=1), NUMBER))
    insert(client, range(3), priority=1000.0)
    insert(client, range(3, 6), priority=1.0)
    assert client.server_info()[TRANSITIONS].current_size == 4
    frequencies = collections.Counter(sample(client, 2000))
    # 2 has weight 1000 ** 0.6 = 63 against 1 each: 3, 4 or 5 missing has (65 / 66) ** 2000 = 5e-14.
    assert set(frequencies) == {2, 3, 4, 5}


NUM_REMOVALS = 1500
# 5 degrees of freedom: a right table exceeds 35.9 in one of a million runs. Exponent -0.5 instead
# of -0.4 would give about 53, uniform removal about 9900.
REMOVAL_CHI_SQUARE_BOUND = 35.9


def test_removal_frequencies(serve):
    """Items leave in proportion to p^-0.4, the newest one included."""
    # Sampled uniformly, so that the numbers in the table are soon known.
    config = ReplayConfig(
        *(5, 1), priority_exponent=0.0, eviction_policy="prioritized", eviction_exponent=-0.4
    )
    client = serve(make_transition_table(config, NUMBER))
    priorities = [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    for number in range(5):
        insert(client, range(number, number + 1), priorities[number])
    # Each trial inserts the number that is missing: all six are there when one of them is drawn.
    missing = 5
    removals = collections.Counter()
    for _ in range(NUM_REMOVALS):
        assert insert(client, range(missing, missing + 1), priorities[missing])
        found = set()
        while len(found) < 5:
            samples = client.sample(
                TRANSITIONS, 16, emit_timesteps=False, unpack_as_table_signature=True
            )
            found.update(int(sample.data) for sample in samples)
        (missing,) = set(range(6)) - found
        removals[missing] += 1
    weights = np.array([0.01**-0.4, 0.1**-0.4, 1.0, 10.0**-0.4, 100.0**-0.4, 1000.0**-0.4])
    expected = NUM_REMOVALS * weights / weights.sum()
    frequencies = np.array([removals[number] for number in range(6)])
    chi_square = ((frequencies - expected) ** 2 / expected).sum()
    assert chi_square < REMOVAL_CHI_SQUARE_BOUND, frequencies


def test_nothing_is_sampled_below_min_size(serve):
    client = serve(make_transition_table(ReplayConfig(max_size=10, min_size=4), NUMBER))
    insert(client, range(3))
    assert sample(client, 20) == []
    insert(client, range(3, 4))
    assert len(sample(client, 20)) == 20


def test_adding_is_never_blocked_without_a_ratio(serve):
    client = serve(make_transition_table(ReplayConfig(max_size=10, min_size=4), NUMBER))
    assert insert(client, range(100))
    assert counts(client) == (100, 0)


# SampleToInsertRatio counts 2 * inserts - samples, which has to stay within the tolerance of
# 2 * 10: 0.5 * 10 * 2 = 10, from 10 to 30.
RATIO = ReplayConfig(
    *(100, 10),
    samples_per_insert=2.0,
    samples_per_insert_tolerance_rate=0.5,
    insert_batch=1,
    max_in_flight=1,
)


def test_ratio_holds_the_learner_back(serve):
    client = serve(make_transition_table(RATIO, NUMBER))
    assert insert(client, range(9))
    assert sample(client) == []  # Below min_size.
    assert insert(client, range(9, 12))
    sample(client)
    assert counts(client) == (12, 14)  # 2 * 12 - 14 = 10
    assert insert(client, range(12, 13))
    sample(client)
    assert counts(client) == (13, 16)


def test_ratio_holds_the_actors_back(serve):
    client = serve(make_transition_table(RATIO, NUMBER))
    assert insert(client, range(15))  # 2 * 15 - 0 = 30
    assert not insert(client, range(15, 16))
    assert counts(client) == (15, 0)


def test_ratio_lets_actors_go_on_when_the_learner_did(serve):
    client = serve(make_transition_table(RATIO, NUMBER))
    assert insert(client, range(15))
    assert len(sample(client, 10)) == 10
    assert insert(client, range(15, 20))  # 2 * 20 - 10 = 30
    assert not insert(client, range(20, 21))
    assert counts(client) == (20, 10)


def test_tolerance_leaves_room_for_batches(serve):
    # 0.5 * 10 * 0.1 = 0.5 is less than 4 * 50 * 0.1 = 20: 0.1 * inserts - samples from -19 to 21.
    config = ReplayConfig(1000, 10, samples_per_insert=0.1, insert_batch=50, max_in_flight=50)
    client = serve(make_transition_table(config, NUMBER))
    assert insert(client, range(200))
    assert len(sample(client)) == 39  # 0.1 * 200 - 39 = -19


def test_rate_limiter_of_the_caller_replaces_that_of_the_config(serve):
    limiter = reverb.rate_limiters.MinSize(1)
    client = serve(make_transition_table(RATIO, NUMBER, rate_limiter=limiter))
    assert insert(client, range(50))
    assert len(sample(client, 200)) == 200


def test_parameter_table_keeps_the_newest(serve):
    variables = {"policy": [tf.Variable([0.0, 0.0]), tf.Variable(0.0)]}
    client = serve(make_parameter_table(variables))
    for step in range(3):
        arrays = {"policy": [np.full(2, step, np.float32), np.float32(-step)]}
        publish_parameters(client, arrays, learner_steps=step)
    table = client.server_info()[PARAMETERS]
    assert (table.current_size, table.max_size) == (1, 1)
    for item in client.sample(PARAMETERS, 3, emit_timesteps=False, unpack_as_table_signature=True):
        assert item.data["learner_steps"].tolist() == [2]
        assert [a.tolist() for a in item.data["variables"]["policy"]] == [[[2.0, 2.0]], [-2.0]]


def test_evaluation_table_keeps_the_newest(serve):
    client = serve(make_evaluation_table())
    for step in range(3):
        report_evaluation(client, Evaluation(*np.array([step, 1, 2, 3, 4], np.float64)))
    assert client.server_info()[EVALUATION].current_size == 1
    for item in client.sample(EVALUATION, 3, emit_timesteps=False, unpack_as_table_signature=True):
        assert [column.tolist() for column in item.data] == [[2], [1], [2], [3], [4]]


def test_defaults_and_the_limits_of_what_is_allowed_are_valid():
    ReplayConfig().validate()
    ReplayConfig(
        max_size=1, min_size=1, priority_exponent=0, importance_sampling_exponent=0
    ).validate()
    ReplayConfig(insert_batch=1, max_in_flight=1, samples_per_insert=0.1).validate()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ReplayConfig(max_size=0), "replay.max_size is 0; it has to be between 1 and 2147483647."),
        (
            ReplayConfig(min_size=-1),
            "replay.min_size is -1; it has to be between 1 and 2147483647.",
        ),
        (ReplayConfig(replicas=0), "replay.replicas is 0; it has to be between 1 and 100."),
        (
            ReplayConfig(insert_batch=0),
            "replay.insert_batch is 0; it has to be between 1 and 1000000.",
        ),
        (
            ReplayConfig(prefetch_batches=0),
            "replay.prefetch_batches is 0; it has to be between 1 and 1000.",
        ),
        (
            ReplayConfig(samples_per_insert=0.0),
            "replay.samples_per_insert is 0.0; it has to be greater than 0.",
        ),
        (
            ReplayConfig(samples_per_insert_tolerance_rate=0.0),
            "replay.samples_per_insert_tolerance_rate is 0.0; it has to be greater than 0.",
        ),
        (
            ReplayConfig(importance_sampling_exponent=1.5),
            "replay.importance_sampling_exponent is 1.5; it has to be between 0 and 1.",
        ),
        (
            ReplayConfig(priority_exponent=-0.4),
            "replay.priority_exponent is -0.4; it has to be between 0 and 10.",
        ),
        (
            ReplayConfig(max_size=10, min_size=11),
            "replay.min_size is 11; it has to be at most max_size (10).",
        ),
        (
            ReplayConfig(insert_batch=50, max_in_flight=49),
            "replay.max_in_flight is 49; it has to be at least insert_batch (50).",
        ),
    ],
)
def test_config_errors(config, message):
    with pytest.raises(ValueError) as error:
        config.validate()
    assert str(error.value) == message


def test_samples_per_insert_counts_a_transition_once_whatever_its_replicas():
    config = ReplayConfig(max_size=1000, min_size=100, samples_per_insert=8.0, replicas=4)
    table = make_transition_table(config, signature=None)
    # Reverb counts items: 8 samples per transition are 2 for each of its 4 items.
    assert table.info.rate_limiter_info.samples_per_insert == 2.0
