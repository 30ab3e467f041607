"""Tests of publishing and reading parameters through a real Reverb server."""

from __future__ import annotations

import itertools
import threading
import types
from typing import Any

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme.tf import variable_utils
from sent_messages import publish_parameters, report_last_step
from waiting import wait_for

from apex_agents.replay.messages import (
    LAST_STEP,
    PARAMETER_VERSION,
    PARAMETERS,
    STEP_REPORTS,
    ParameterSource,
    Publisher,
    make_message_tables,
    parameter_messages,
    to_arrays,
)

TABLES = (PARAMETERS, PARAMETER_VERSION)


def make_variables(start: float) -> dict[str, list[tf.Variable]]:
    """Make two groups with several shapes and dtypes."""
    return {
        "policy": [
            tf.Variable(tf.reshape(tf.range(start, start + 6), [2, 3])),
            tf.Variable(start + 10),
        ],
        "steps": [tf.Variable([int(start) + 20, 21], dtype=tf.int64)],
    }


def expected_arrays(start: float) -> dict[str, list[np.ndarray]]:
    matrix = [[start, start + 1, start + 2], [start + 3, start + 4, start + 5]]
    return {
        "policy": [np.array(matrix, np.float32), np.float32(start + 10)],
        "steps": [np.array([int(start) + 20, 21], np.int64)],
    }


def assert_equal(groups: list, expected: list) -> None:
    assert [len(group) for group in groups] == [len(group) for group in expected]
    for group, expected_group in zip(groups, expected, strict=True):
        for array, expected_array in zip(group, expected_group, strict=True):
            np.testing.assert_array_equal(array, expected_array)
            assert array.dtype == expected_array.dtype


@pytest.fixture
def client(serve) -> reverb.Client:
    return serve(*make_message_tables(make_variables(0.0)))


def num_fetches(client: reverb.Client) -> int:
    return client.server_info()[PARAMETERS].rate_limiter_info.sample_stats.completed


def test_step_reports_are_read_once_and_in_order(client):
    reports = [[0, 5], [1, 7], [0, 9]]
    for report in reports:
        client.insert(np.array(report), {STEP_REPORTS: 1.0})
    found = client.sample(STEP_REPORTS, 3, emit_timesteps=False, unpack_as_table_signature=True)
    assert [sample.data[0].tolist() for sample in found] == reports
    wait_for(lambda: client.server_info()[STEP_REPORTS].current_size == 0)


def test_to_arrays():
    arrays = to_arrays(make_variables(5.0))
    assert list(arrays) == ["policy", "steps"]
    assert_equal(list(arrays.values()), list(expected_arrays(5.0).values()))


def test_published_parameters_arrive(client):
    publish_parameters(client, to_arrays(make_variables(5.0)), learner_steps=7)
    source = ParameterSource(client)
    assert source.learner_steps == -1
    expected = expected_arrays(5.0)
    assert_equal(source.get_variables(["policy"]), [expected["policy"]])
    assert_equal(source.get_variables(["steps", "policy"]), [expected["steps"], expected["policy"]])
    assert source.learner_steps == 7


def test_reads_again_only_what_is_new(client):
    source = ParameterSource(client)
    publish_parameters(client, to_arrays(make_variables(0.0)), learner_steps=1)
    for _ in range(3):
        source.get_variables(["policy"])
    assert num_fetches(client) == 1
    publish_parameters(client, to_arrays(make_variables(1.0)), learner_steps=2)
    publish_parameters(client, to_arrays(make_variables(2.0)), learner_steps=3)
    for _ in range(3):
        assert_equal(source.get_variables(["policy"]), [expected_arrays(2.0)["policy"]])
    assert num_fetches(client) == 2
    assert source.learner_steps == 3


def test_waits_for_the_first_publication(client):
    asked = threading.Semaphore(0)
    source = ParameterSource(client, should_stop=lambda: asked.release() or False)
    received: list = []
    reader = threading.Thread(target=lambda: received.extend(source.get_variables(["policy"])))
    reader.start()
    for _ in range(3):
        assert asked.acquire(timeout=60)
    assert reader.is_alive()
    publish_parameters(client, to_arrays(make_variables(5.0)), learner_steps=0)
    reader.join(timeout=60)
    assert_equal(received, [expected_arrays(5.0)["policy"]])
    assert source.learner_steps == 0


def test_stops_waiting_with_the_program(client):
    answers = itertools.chain([False] * 3, itertools.repeat(True))
    source = ParameterSource(client, should_stop=lambda: next(answers))
    with pytest.raises(RuntimeError, match="stopped before the learner published"):
        source.get_variables(["policy"])


def test_works_with_acmes_variable_client(client):
    publish_parameters(client, to_arrays(make_variables(5.0)), learner_steps=7)
    variables = make_variables(0.0)
    variable_client = variable_utils.VariableClient(ParameterSource(client), variables)
    variable_client.update_and_wait()
    expected = expected_arrays(5.0)
    assert_equal(list(to_arrays(variables).values()), [expected["policy"], expected["steps"]])


def test_a_source_knows_whether_the_run_is_over(serve):
    client = serve(*make_message_tables(make_variables(0.0)))
    publish_parameters(client, to_arrays(make_variables(5.0)), learner_steps=7)
    source = ParameterSource(client)

    def is_run_over() -> bool:
        source.refresh()
        return source.is_run_over

    assert not is_run_over()
    report_last_step(client, 7)
    assert is_run_over()
    client.reset(LAST_STEP)  # The learner went on after all.
    assert not is_run_over()


def test_the_last_parameters_stand_while_the_server_is_away(reserved_port):
    server = reverb.Server(make_message_tables(make_variables(0.0)), reserved_port())
    client = reverb.Client(f"localhost:{server.port}")
    publish_parameters(client, to_arrays(make_variables(5.0)), learner_steps=7)
    source = ParameterSource(client, timeout_seconds=1)
    source.get_variables(["policy"])
    server.stop()
    assert_equal(source.get_variables(["policy"]), [expected_arrays(5.0)["policy"]])
    assert source.learner_steps == 7


@pytest.mark.parametrize("num_publications", [1, 3])
def test_parameters_of_a_server_that_replaces_another_are_read(num_publications, reserved_port):
    port = reserved_port()
    source = ParameterSource(reverb.Client(f"localhost:{port}"))
    for start in range(5):
        server = reverb.Server(make_message_tables(make_variables(0.0)), port)
        publisher = Publisher(reverb.Client(f"localhost:{port}"), *TABLES)
        for _ in range(num_publications):
            publisher.publish(*parameter_messages(expected_arrays(start), 7))
            publisher.flush()
        # It keeps the last ones while the server does not answer yet.
        wait_for(lambda start=start: source.get_variables(["policy"])[0][1] == start + 10)
        publisher.close()
        server.stop()


def test_parameters_of_a_learner_that_is_at_the_same_step_again_are_read(client):
    source = ParameterSource(client)
    for start in (1.0, 2.0):
        publisher = Publisher(client, *TABLES)
        publisher.publish(*parameter_messages(expected_arrays(start), 7))
        publisher.close()
        assert_equal(source.get_variables(["policy"]), [expected_arrays(start)["policy"]])


def num_publications(client: reverb.Client) -> int:
    return client.server_info()[PARAMETERS].rate_limiter_info.insert_stats.completed


def test_publisher_publishes_what_it_is_given(client):
    publisher = Publisher(client, *TABLES)
    publisher.publish(*parameter_messages(expected_arrays(1.0), 7))
    publisher.flush()
    source = ParameterSource(client)
    arrays = source.get_variables(["policy", "steps"])
    assert_equal(arrays, list(expected_arrays(1.0).values()))
    assert source.learner_steps == 7
    publisher.publish(*parameter_messages(expected_arrays(2.0), 8))
    publisher.close()  # Publishes what waits.
    wait_for(lambda: num_publications(client) == 2)
    assert_equal(source.get_variables(["steps"]), [expected_arrays(2.0)["steps"]])
    assert client.server_info()[PARAMETERS].current_size == 1  # Older ones take no memory.


class CheckCounter:
    """A client that counts how often its server was asked about its tables."""

    def __init__(self, client: reverb.Client):
        self._client = client
        self.insert = client.insert
        self.num_checks = 0

    def server_info(self, timeout: int | None = None) -> dict:
        info = self._client.server_info(timeout)
        self.num_checks += 1
        return info


def test_publisher_publishes_again_on_a_server_that_has_nothing(client):
    counter = CheckCounter(client)
    publisher = Publisher(counter, *TABLES, check_period_seconds=0.05)
    publisher.publish(*parameter_messages(expected_arrays(1.0), 7))
    publisher.flush()
    wait_for(lambda: counter.num_checks >= 3)
    assert num_publications(client) == 1  # Not while its parameters are there.
    client.reset(PARAMETERS)
    source = ParameterSource(client)
    assert_equal(source.get_variables(["steps"]), [expected_arrays(1.0)["steps"]])
    assert source.learner_steps == 7
    publisher.close()


class SilentClient:
    """A client of a server that does not answer until `answer` is set."""

    def __init__(self):
        self.answer = threading.Event()
        self.inserted: list[int] = []

    def server_info(self, timeout: int) -> dict:
        self.answer.wait()
        one = types.SimpleNamespace(current_size=1)
        return {PARAMETERS: one, PARAMETER_VERSION: one}

    def insert(self, item: Any, priorities: dict[str, float]) -> None:
        if PARAMETERS in priorities:
            self.inserted.append(int(item["learner_steps"]))


def test_publisher_does_not_wait_for_a_slow_server():
    client = SilentClient()
    publisher = Publisher(client, *TABLES)
    for step in range(3):
        publisher.publish(*parameter_messages(expected_arrays(1.0), step))
    publisher.flush(timeout_seconds=0.01)
    assert client.inserted == []
    client.answer.set()
    publisher.flush()
    assert client.inserted[-1] == 2
    publisher.close()


def test_publisher_publishes_on_the_server_that_replaces_another(reserved_port):
    first = reverb.Server(make_message_tables(make_variables(0.0)), reserved_port())
    client = reverb.Client(f"localhost:{first.port}")
    publisher = Publisher(client, *TABLES)
    first.stop()
    for step in range(3):
        publisher.publish(*parameter_messages(expected_arrays(1.0), step))
    second = reverb.Server(make_message_tables(make_variables(0.0)), first.port)
    publisher.flush()
    source = ParameterSource(reverb.Client(f"localhost:{first.port}"))
    assert_equal(source.get_variables(["steps"]), [expected_arrays(1.0)["steps"]])
    assert source.learner_steps == 2
    publisher.close()
    second.stop()


def test_publisher_tells_its_caller_of_a_mistake(client):
    publisher = Publisher(client, *TABLES)
    publisher.publish(*parameter_messages({"policy": []}, 1))
    publisher.flush()
    with pytest.raises(ValueError, match="parameters"):
        publisher.publish(*parameter_messages(expected_arrays(1.0), 2))


def test_a_source_of_several_servers_reads_what_one_has(serve, reserved_port):
    stopped = reverb.Server(make_message_tables(make_variables(0.0)), reserved_port())
    clients = [reverb.Client(f"localhost:{stopped.port}")]
    clients.append(serve(*make_message_tables(make_variables(0.0))))
    stopped.stop()
    publish_parameters(clients[1], to_arrays(make_variables(5.0)), 3)
    source = ParameterSource(clients, timeout_seconds=5)
    assert_equal(source.get_variables(["policy"]), [expected_arrays(5.0)["policy"]])
    publish_parameters(clients[1], to_arrays(make_variables(6.0)), 4)
    assert_equal(source.get_variables(["policy"]), [expected_arrays(6.0)["policy"]])
    assert source.learner_steps == 4


def test_a_source_of_several_servers_moves_to_another_one(serve, reserved_port):
    tables = [make_message_tables(make_variables(0.0)) for _ in range(2)]
    first = reverb.Server(tables[0], reserved_port())
    clients = [reverb.Client(f"localhost:{first.port}"), serve(*tables[1])]
    source = ParameterSource(clients, timeout_seconds=5)
    for client, start, steps in ((clients[0], 5.0, 3), (clients[1], 6.0, 4)):
        publish_parameters(client, to_arrays(make_variables(start)), steps)
    source.get_variables(["policy"])
    assert source.learner_steps == 3
    first.stop()
    source.get_variables(["policy"])
    assert source.learner_steps == 4
