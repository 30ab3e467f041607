"""Tests of the counts that the replay server keeps."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import reverb
import tensorflow as tf
from sent_messages import publish_actor_steps, report_evaluation, report_last_step
from waiting import wait_for

from apex_agents.metrics.statistics import (
    ReplayStatistics,
    StatisticsPoller,
    add_statistics,
    read_actor_steps,
    read_statistics,
)
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import Evaluation, make_message_tables
from apex_agents.replay.tables import TRANSITIONS, DataFlow, RunClient, make_transition_table


def make_tables() -> list[reverb.Table]:
    config = ReplayConfig(max_size=10, min_size=1)
    signature = tf.TensorSpec([], tf.int64)
    return [
        make_transition_table(config, signature),
        *make_message_tables({}),
    ]


@pytest.fixture
def client(serve) -> reverb.Client:
    return serve(*make_tables())


def insert(client: reverb.Client, num_items: int) -> None:
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for number in range(num_items):
            writer.append(np.int64(number))
            writer.create_item(TRANSITIONS, 1.0, writer.history[-1])


def test_empty_replay(client):
    assert read_statistics(client) == ReplayStatistics(0, 0, 0, 0, None)
    assert read_statistics(client).samples_per_insert == 0


@pytest.mark.parametrize(
    ("replicas", "inserted", "replay_size", "samples_per_insert"),
    [(1, 16, 10, 0.375), (4, 4, 2, 1.5)],
)
def test_counts(replicas, inserted, replay_size, samples_per_insert, client):
    insert(client, 16)
    assert len(list(client.sample(TRANSITIONS, 6, emit_timesteps=False))) == 6
    statistics = read_statistics(client, DataFlow(replicas=replicas))
    # The table holds 10 items.
    expected = ReplayStatistics(0, inserted, 6, replay_size, None)
    assert statistics == expected
    assert statistics.samples_per_insert == samples_per_insert


def test_evaluation_is_reported_and_read_back(client):
    for mean_return in (-1.5, 20.25):
        report_evaluation(
            client,
            Evaluation(
                mean_return=np.float64(mean_return),
                standard_error=np.float64(0.5),
                num_episodes=np.float64(10),
                learner_steps=np.float64(2000),
                actor_steps=np.float64(2**53 - 1),
            ),
        )
    for _ in range(2):  # Reading takes nothing away.
        evaluation = read_statistics(client).evaluation
        assert evaluation == Evaluation(20.25, 0.5, 10.0, 2000.0, 2.0**53 - 1)
        assert np.shape(evaluation.mean_return) == ()


def test_reading_does_not_count_as_sampling(client):
    insert(client, 3)
    report_evaluation(client, Evaluation(*np.zeros(5)))
    read_statistics(client)
    assert read_statistics(client).sampled == 0


def test_steps_are_those_that_actors_reported(client):
    assert read_actor_steps(client) is None
    publish_actor_steps(client, 1000, 3)
    insert(client, 12)
    assert read_actor_steps(client) == [1000, 3]
    assert read_statistics(client).actor_steps == 1003


def test_tables_of_another_run_are_no_statistics(client):
    stranger = RunClient(client.server_address, "7f3a")
    with pytest.raises(RuntimeError, match=r"but not .*transitions-7f3a"):
        read_statistics(stranger)


def test_server_that_does_not_answer(reserved_port):
    server = reverb.Server(make_tables(), reserved_port())
    client = reverb.Client(f"localhost:{server.port}")
    server.stop()
    with pytest.raises((RuntimeError, reverb.errors.DeadlineExceededError)):
        read_statistics(client, timeout_seconds=1)


def test_poller(client):
    insert(client, 4)
    poller = StatisticsPoller(client, DataFlow(replicas=2), period_seconds=0.05)
    wait_for(lambda: poller.latest == ReplayStatistics(0, 2, 0, 2, None))
    poller.close()


def test_several_servers_count_together(serve):
    clients = [serve(*make_tables()) for _ in range(2)]
    for client, before, num_items in zip(clients, (100, 200), (4, 2), strict=True):
        publish_actor_steps(client, before)
        insert(client, num_items)
    assert len(list(clients[1].sample(TRANSITIONS, 3, emit_timesteps=False))) == 3
    older, newer = (Evaluation(*np.full(5, value)) for value in (8.0, 9.0))
    report_evaluation(clients[0], newer)
    report_evaluation(clients[1], older)
    report_last_step(clients[1], 70)
    poller = StatisticsPoller(clients, period_seconds=1000.0)
    assert poller.latest == ReplayStatistics()
    for index in range(2):
        poller.refresh(index)
    assert poller.latest == ReplayStatistics(300, 6, 3, 6, newer, 70)
    poller.close()


def test_the_evaluation_of_the_last_step_counts_though_another_server_has_one_of_a_later_step():
    older, newer = (Evaluation(*np.full(5, value)) for value in (8.0, 9.0))
    parts = [ReplayStatistics(evaluation=newer), ReplayStatistics(evaluation=older, last_step=8)]
    for together in (add_statistics(parts), add_statistics(parts[::-1])):
        assert together == ReplayStatistics(evaluation=older, last_step=8)


def test_a_server_that_is_away_has_the_counts_that_it_had(client, reserved_port):
    other = reverb.Server(make_tables(), reserved_port())
    clients = [client, reverb.Client(f"localhost:{other.port}")]
    poller = StatisticsPoller(clients, period_seconds=0.05)
    for each in clients:
        insert(each, 3)
    wait_for(lambda: poller.latest.inserted == 6)
    other.stop()
    insert(client, 5)
    wait_for(lambda: poller.latest.inserted == 3 + 5 + 3)
    poller.close()


def test_a_server_that_has_moved_is_read_at_its_new_address(client, serve):
    clients = collections.UserList([client])
    poller = StatisticsPoller(clients, period_seconds=0.05)
    insert(client, 3)
    wait_for(lambda: poller.latest.inserted == 3)
    new = serve(*make_tables())
    publish_actor_steps(new, 5)
    insert(new, 2)
    clients[0] = new
    wait_for(lambda: poller.latest[:2] == (5, 2))
    insert(client, 4)  # The old one is read no more.
    insert(new, 1)
    wait_for(lambda: poller.latest[:2] == (5, 3))
    poller.close()


def test_actor_steps_do_not_go_back_while_a_new_server_does_not_know_those_before_it(client, serve):
    clients = collections.UserList([client])
    poller = StatisticsPoller(clients, period_seconds=0.05)
    publish_actor_steps(client, 3)
    insert(client, 3)
    wait_for(lambda: poller.latest[:2] == (3, 3))
    new = serve(*make_tables())
    insert(new, 2)
    clients[0] = new
    wait_for(lambda: poller.latest[:2] == (3, 2))
    publish_actor_steps(new, 5)
    wait_for(lambda: poller.latest[:2] == (5, 2))
    poller.close()
