"""Tests of parameters that arrive by themselves, on a real server."""

import contextlib
import types
from collections.abc import Iterator

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme.tf import variable_utils
from sent_messages import publish_parameters
from waiting import TIMEOUT_SECONDS

from apex_agents.learning import following
from apex_agents.learning.following import FollowingSource, make_following_tables
from apex_agents.replay.connections import ParameterPublisher
from apex_agents.replay.messages import (
    LAST_STEP,
    make_message_tables,
    parameter_messages,
    to_arrays,
)
from apex_agents.replay.tables import RunClient, run_table_name

RUN_ID = "7"


def make_variables(value: float) -> dict[str, list[tf.Variable]]:
    return {"network": [tf.Variable([value, -value]), tf.Variable(value)]}  # float32.


class Server:
    """A server of a run with two followers, its publisher, and how often it was asked."""

    def __init__(self, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch):
        tables = make_message_tables(make_variables(0.0))
        tables += make_following_tables(tables, 2)
        named = [table.replace(name=run_table_name(table.name, RUN_ID)) for table in tables]
        server = reverb.Server(named)
        stack.callback(server.stop)
        self.client = RunClient(f"localhost:{server.port}", RUN_ID)
        self.num_asked = 0
        server_info = self.client.server_info

        def count(*arguments):
            self.num_asked += 1
            return server_info(*arguments)

        self._publisher = ParameterPublisher(RunClient(f"localhost:{server.port}", RUN_ID))
        stack.callback(self._publisher.close)
        monkeypatch.setattr(self.client, "server_info", count)
        # It is asked when a test says so, however slow the machine.
        monkeypatch.setattr(following, "_ASK_SECONDS", TIMEOUT_SECONDS)

    def publish(self, learner_steps: int) -> None:
        self._publisher.publish(to_arrays(make_variables(float(learner_steps))), learner_steps)
        self._publisher.flush()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        yield Server(stack, monkeypatch)


def follow(server: Server, index: int = 0) -> FollowingSource:
    return FollowingSource(server.client, index)


def test_every_follower_gets_each_version_without_asking(server):
    server.publish(1)
    sources = [follow(server, index) for index in range(2)]
    policies = [make_variables(0.0) for _ in sources]
    clients = [
        variable_utils.VariableClient(source, source.track(variables))
        for source, variables in zip(sources, policies, strict=True)
    ]
    for source, client in zip(sources, clients, strict=True):
        client.update_and_wait()
        source.await_next()  # The first version, which the server was asked for.
        client.update_and_wait()
    num_asked = server.num_asked
    for learner_steps in (2, 3):
        server.publish(learner_steps)
        for source, client, variables in zip(sources, clients, policies, strict=True):
            while source.learner_steps < learner_steps:
                source.await_next()
                client.update_and_wait()
            assert source.learner_steps == learner_steps
            vector, scalar = variables["network"]
            np.testing.assert_array_equal(vector, [learner_steps, -learner_steps])
            assert float(scalar) == learner_steps
    assert server.num_asked == num_asked
    for source in sources:
        source.close()


class Arrivals:
    """A reader in whose hands are messages with some learner steps."""

    def __init__(self, *learner_steps: int):
        self._messages = [
            parameter_messages(to_arrays(make_variables(float(steps))), steps)[0]
            for steps in learner_steps
        ]

    def poll(self, seconds: float) -> types.SimpleNamespace | None:
        return types.SimpleNamespace(data=self._messages.pop(0)) if self._messages else None

    def close(self) -> None:
        """Do nothing."""


def follow_arrivals(server: Server, learner_steps: int, *arrivals: int) -> FollowingSource:
    """Follow a server that was asked for its parameters before others arrive."""
    server.publish(learner_steps)
    source = follow(server)
    source.refresh()
    assert source.newest_steps == learner_steps
    source.close()
    source._reader = Arrivals(*arrivals)  # type: ignore[assignment]
    return source


def test_what_arrives_late_does_not_replace_newer_parameters(server):
    source = follow_arrivals(server, 5, 3)
    source.await_next()
    source.refresh()
    assert source.newest_steps == 5


def test_who_did_not_wait_has_the_newest_parameters_all_the_same(server):
    source = follow_arrivals(server, 1, 2)  # The reader has not got others yet.
    server.publish(7)
    source.refresh()
    assert source.newest_steps == 7


def test_a_version_that_arrives_after_a_learner_began_again_is_not_kept(server):
    source = follow_arrivals(server, 500, 501)
    server.publish(400)
    arrivals, source._reader = source._reader, None
    source._ask_at = 0.0
    source.refresh()
    source._reader = arrivals
    source.await_next()
    source.refresh()
    assert source.newest_steps == 501
    source._ask_at = 0.0
    source.refresh()
    assert source.newest_steps == 400


def test_the_end_of_the_run_is_seen_while_versions_arrive(server):
    source = follow_arrivals(server, 1, 2)
    server.client.insert(np.int64(2), {run_table_name(LAST_STEP, RUN_ID): 1.0})
    source._ask_at = 0.0
    source.await_next()
    source.refresh()
    assert source.is_run_over


def test_a_learner_that_began_again_is_followed_once_the_server_is_asked(server):
    source = follow_arrivals(server, 5)
    server.publish(3)
    source.refresh()
    assert source.newest_steps == 5
    source._ask_at = 0.0
    source.refresh()
    assert source.newest_steps == 3


def test_parameters_are_found_where_nobody_publishes_to_followers(server):
    publish_parameters(server.client, to_arrays(make_variables(2.0)), 2)
    source = follow(server)
    (group,) = source.get_variables(["network"])
    np.testing.assert_array_equal(group[0], [2.0, -2.0])
    assert source.learner_steps == 2
    source.close()
