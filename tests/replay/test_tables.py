"""Tests of the tables on a real Reverb server: sampling, eviction, rate limits, access by run."""

from __future__ import annotations

import collections
import pickle

import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf
from sent_messages import publish_parameters, report_evaluation

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import Catch, EnvironmentSpec
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.messages import EVALUATION, PARAMETERS, Evaluation, make_message_tables
from apex_agents.replay.priorities import PriorityWriter
from apex_agents.replay.tables import (
    TRANSITIONS,
    RunClient,
    make_transition_table,
    run_table_name,
    table_name,
)
from apex_agents.replay.transitions import make_layout

NUMBER = tf.TensorSpec([], tf.int64)


def insert(
    client: reverb.Client, numbers: range, priority: float = 1.0, seconds: float = 60.0
) -> bool:
    """Insert items that hold a number; return whether all of them were accepted in time."""
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    for number in numbers:
        writer.append(np.int64(number))
        writer.create_item(TRANSITIONS, priority, writer.history[-1])
    try:
        writer.flush(timeout_ms=round(1000 * seconds))
    except reverb.errors.DeadlineExceededError:
        return False
    return True


def sample(client: reverb.Client, num_samples: int = -1, seconds: float = 60.0) -> list[int]:
    """Sample so many items, or until the limiter lets nothing through for some seconds."""
    dataset = reverb.TrajectoryDataset.from_table_signature(
        server_address=client.server_address,
        table=TRANSITIONS,
        max_in_flight_samples_per_worker=max(min(num_samples, 1000), 1),
        num_workers_per_iterator=1,
        max_samples=num_samples,
        rate_limiter_timeout_ms=round(1000 * seconds),
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


def test_a_full_table_removes_its_oldest_item_whatever_the_priority(serve):
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
    """Items are removed in proportion to p^-0.4, the newest one included."""
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
    assert sample(client, 20, seconds=0.5) == []
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
    assert sample(client, seconds=0.5) == []  # Below min_size.
    assert insert(client, range(9, 12))
    assert len(sample(client, 14)) == 14  # 2 * 12 - 14 = 10
    assert sample(client, seconds=0.5) == []
    assert insert(client, range(12, 13))
    assert len(sample(client, 2)) == 2
    assert sample(client, seconds=0.5) == []
    assert counts(client) == (13, 16)


def test_ratio_holds_the_actors_back(serve):
    client = serve(make_transition_table(RATIO, NUMBER))
    assert insert(client, range(15))  # 2 * 15 - 0 = 30
    assert not insert(client, range(15, 16), seconds=0.5)
    assert counts(client) == (15, 0)


def test_ratio_lets_actors_continue_when_the_learner_did(serve):
    client = serve(make_transition_table(RATIO, NUMBER))
    assert insert(client, range(15))
    assert len(sample(client, 10)) == 10
    assert insert(client, range(15, 20))  # 2 * 20 - 10 = 30
    assert not insert(client, range(20, 21), seconds=0.5)
    assert counts(client) == (20, 10)


def test_tolerance_leaves_room_for_batches(serve):
    # 0.5 * 10 * 0.1 = 0.5 is less than 4 * 50 * 0.1 = 20: 0.1 * inserts - samples from -19 to 21.
    config = ReplayConfig(1000, 10, samples_per_insert=0.1, insert_batch=50, max_in_flight=50)
    client = serve(make_transition_table(config, NUMBER))
    assert insert(client, range(200))
    assert len(sample(client, 39)) == 39  # 0.1 * 200 - 39 = -19
    assert sample(client, seconds=0.5) == []


def test_tables_of_parameters_and_evaluations_keep_the_newest(serve):
    variables = {"policy": [tf.Variable([0.0, 0.0]), tf.Variable(0.0)]}
    client = serve(*make_message_tables(variables))
    for step in range(3):
        arrays = {"policy": [np.full(2, step, np.float32), np.float32(-step)]}
        publish_parameters(client, arrays, learner_steps=step)
        report_evaluation(client, Evaluation(*np.array([step, 1, 2, 3, 4], np.float64)))
    for table, expected in [
        (PARAMETERS, [[2], [[2.0, 2.0]], [-2.0]]),
        (EVALUATION, [[2], [1], [2], [3], [4]]),
    ]:
        assert client.server_info()[table].current_size == 1
        for item in client.sample(table, 3, emit_timesteps=False, unpack_as_table_signature=True):
            assert [column.tolist() for column in tf.nest.flatten(item.data)] == expected


@pytest.mark.parametrize(
    ("samples_per_insert", "tolerance"),
    [
        (8.0, 0.5 * 100 * 2.0),
        (0.2, 4.0),  # Four samples, which are more than 0.5 * 100 * 0.05 and 4 * 2 * 0.05.
    ],
)
def test_samples_per_insert_counts_a_transition_once_whatever_its_replicas(
    samples_per_insert, tolerance
):
    config = ReplayConfig(
        *(1000, 100),
        samples_per_insert=samples_per_insert,
        samples_per_insert_tolerance_rate=0.5,
        replicas=4,
        insert_batch=1,
        max_in_flight=2,
    )
    limiter = make_transition_table(config, signature=None).info.rate_limiter_info
    # Reverb counts items: 8 samples per transition are 2 for each of its 4 items.
    assert limiter.samples_per_insert == samples_per_insert / 4
    middle = 100 * limiter.samples_per_insert
    assert limiter.max_diff - middle == middle - limiter.min_diff == tolerance


REPLAY = ReplayConfig(max_size=10, min_size=1)
VARIABLES = {"network": [tf.Variable([1.0, 2.0])]}


CATCH = Catch(seed=0)
SPEC = EnvironmentSpec(
    CATCH.observation_spec(), CATCH.action_spec(), CATCH.reward_spec(), CATCH.discount_spec()
)
LAYOUT = make_layout(SPEC, REPLAY, n_step=1)


def make_tables_of(run_id: str) -> list[reverb.Table]:
    transitions = make_transition_table(REPLAY, LAYOUT.signature)
    tables = [transitions, *make_message_tables(VARIABLES)]
    return [table.replace(name=run_table_name(table.name, run_id)) for table in tables]


@pytest.fixture
def address(serve) -> str:
    return serve(*make_tables_of("ours")).server_address


def num_transitions(address: str) -> int:
    return reverb.Client(address).server_info()["transitions-ours"].current_size


def add_an_episode(client: reverb.Client) -> None:
    """Adds two transitions of one step each."""
    adder = PrioritizedNStepAdder(client, LAYOUT, REPLAY, n_step=1, discount=0.9)
    observation = np.zeros([10, 5], np.float32)
    # Priorities are 0.9 * 2 - 0 and 1 - 0.
    output = PolicyOutput(np.int32(0), np.float32(0.0), np.float32(2.0))
    adder.add(dm_env.restart(observation), output)
    adder.add(dm_env.transition(0.0, observation), output)
    adder.add(dm_env.termination(1.0, observation), output)
    adder.close()


def test_names_of_tables():
    ordinary = reverb.Client("localhost:1")
    assert table_name(ordinary, TRANSITIONS) == "transitions"
    assert table_name(RunClient("localhost:1", ""), TRANSITIONS) == "transitions"
    assert table_name(RunClient("localhost:1", "7f3a"), TRANSITIONS) == "transitions-7f3a"


def test_the_run_survives_pickling():
    client = pickle.loads(pickle.dumps(RunClient("localhost:1", "7f3a")))
    assert (client.server_address, client.run_id) == ("localhost:1", "7f3a")


@pytest.mark.fault(
    breaks="actors, learner or evaluator of another run at this run's port",
    holds="everything they send is refused by the server, whatever its shape",
)
def test_strangers_are_refused(address):
    ours, stranger = RunClient(address, "ours"), RunClient(address, "theirs")
    add_an_episode(ours)
    assert num_transitions(address) == 2
    with pytest.raises((ValueError, RuntimeError), match="transitions-theirs"):
        add_an_episode(stranger)
    with pytest.raises((ValueError, RuntimeError), match="parameters-theirs"):
        publish_parameters(stranger, {"network": [np.zeros(2, np.float32)]}, 1)
    with pytest.raises(tf.errors.NotFoundError, match="transitions-theirs"):
        next(iter(make_dataset(stranger, REPLAY, 1, LAYOUT)))
    writer = PriorityWriter(stranger)
    (sample,) = ours.sample("transitions-ours", 1, emit_timesteps=False)
    writer.write(np.array([sample.info.key], np.uint64), np.array([7.0]))
    writer.flush()
    writer.close()
    assert writer.num_dropped_batches == 1
    samples = ours.sample("transitions-ours", 20, emit_timesteps=False)
    assert 7.0 not in {s.info.priority for s in samples}
    assert num_transitions(address) == 2


def test_a_writer_that_knew_another_server_is_refused(reserved_port):
    # The server of another run takes over the port while an actor is connected.
    first = reverb.Server(make_tables_of("ours"), reserved_port())
    client = RunClient(f"localhost:{first.port}", "ours")
    add_an_episode(client)
    first.stop()
    second = reverb.Server(make_tables_of("theirs"), first.port)
    # Reverb 0.14 starts a writer's thread before the status that it writes if its stream fails at
    # once exists: without this the process may die.
    client.reset("transitions-theirs")
    with pytest.raises(RuntimeError, match="transitions-ours was not found"):
        add_an_episode(client)
    theirs = reverb.Client(f"localhost:{first.port}").server_info()["transitions-theirs"]
    assert theirs.current_size == 0
    second.stop()


@pytest.mark.fault(
    breaks="priorities that arrive at a restarted replay for transitions of the old one",
    holds="they change no priority of a new transition",
)
def test_priorities_for_an_old_server_change_nothing(reserved_port):
    first = reverb.Server(make_tables_of("ours"), reserved_port())
    client = RunClient(f"localhost:{first.port}", "ours")
    add_an_episode(client)
    samples = list(client.sample("transitions-ours", 20, emit_timesteps=False))
    old_keys = np.array(sorted({sample.info.key for sample in samples}), np.uint64)
    assert len(old_keys) == 2
    first.stop()
    second = reverb.Server(make_tables_of("ours"), first.port)
    client = RunClient(f"localhost:{first.port}", "ours")
    add_an_episode(client)

    def new_priorities() -> set[tuple[int, float]]:
        samples = client.sample("transitions-ours", 50, emit_timesteps=False)
        return {(sample.info.key, sample.info.priority) for sample in samples}

    before = new_priorities()
    assert len(before) == 2
    writer = PriorityWriter(client)
    writer.write(old_keys, np.array([77.0, 78.0]))
    writer.flush()
    assert writer.num_dropped_batches == 0
    assert new_priorities() == before
    new_keys = np.array([key for key, _ in before], np.uint64)
    writer.write(new_keys, np.array([77.0, 78.0]))  # Known keys do change.
    writer.flush()
    writer.close()
    assert {priority for _, priority in new_priorities()} == {77.0, 78.0}
    second.stop()
