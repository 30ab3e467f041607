"""Tests of the limit in transitions with a real replay server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import reverb
import tensorflow as tf

from apex_agents.config import RunConfig
from apex_agents.nodes.step_limit import StepLimit
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.flow import DataFlow
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.statistics import count_actor_steps, report_actor_steps_before
from apex_agents.replay.tables import TRANSITIONS, make_transition_table


class Adder:
    """Has up to ten transitions in flight."""

    def __init__(self, client: reverb.Client):
        self._client = client
        self._kept = 0
        self.num_transitions = 0
        self.num_flushes = 0

    def add(self, number: int) -> None:
        self.num_transitions += number
        self._kept += number
        if self._kept > 10:
            self._send()

    def flush(self) -> None:
        self.num_flushes += 1
        self._send()

    def _send(self) -> None:
        with self._client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for _ in range(self._kept):
                writer.append(np.int64(0))
                writer.create_item(TRANSITIONS, 1.0, writer.history[-1])
                writer.flush()
        self._kept = 0


def make_limit(client, adders, limit, num_actors=1, num_replays=1, replicas=1) -> StepLimit:
    run = RunConfig(num_actors=num_actors, num_replays=num_replays, max_actor_steps=limit)
    return StepLimit(client, adders, run, DataFlow(replicas=replicas))


@pytest.fixture
def start(reserved_port) -> Iterator[Callable[[], tuple[reverb.Server, reverb.Client]]]:
    servers = []

    def start_server() -> tuple[reverb.Server, reverb.Client]:
        config = ReplayConfig(max_size=10_000, min_size=1)
        tables = [
            make_transition_table(config, tf.TensorSpec([], tf.int64)),
            *make_message_tables({}),
        ]
        servers.append(reverb.Server(tables, reserved_port()))
        return servers[-1], reverb.Client(f"localhost:{servers[-1].port}")

    yield start_server
    for server in servers:
        server.stop()


def test_one_actor_ends_within_a_lock_step_of_the_limit(start):
    _, client = start()
    report_actor_steps_before(client, 100)
    adders = [Adder(client), Adder(client)]
    limit = make_limit(client, adders, 1000)
    while not limit.is_reached():
        for adder in adders:
            adder.add(4)
    steps = count_actor_steps(client)
    assert steps is not None and 1000 <= steps < 1000 + 8
    # An eighth of what is left each time: the replay is seldom asked.
    assert adders[0].num_flushes < 40
    assert limit.is_reached()


def test_actors_of_unequal_speed_share_the_limit(start):
    _, client = start()
    report_actor_steps_before(client, 0)
    adders = [Adder(client) for _ in range(3)]
    limits = [make_limit(client, [adder], 3000, num_actors=3) for adder in adders]
    speeds = (1, 5, 10)
    for _ in range(3000):
        for adder, limit, speed in zip(adders, limits, speeds, strict=True):
            for _ in range(speed):
                if not limit.is_reached():
                    adder.add(2)
        if all(limit.is_reached() for limit in limits):
            break
    steps = count_actor_steps(client)
    assert steps is not None and 3000 <= steps < 1.02 * 3000
    # The fastest does what the slowest leaves.
    assert adders[0].num_transitions < 1000 < adders[2].num_transitions


def test_replicas_are_no_transitions(start):
    _, client = start()
    report_actor_steps_before(client, 0)
    adder = Adder(client)
    adder.add(40)
    adder.flush()
    assert not make_limit(client, [], 11, replicas=4).is_reached()
    assert make_limit(client, [], 10, replicas=4).is_reached()


def test_the_actors_of_each_server_have_an_equal_part(start):
    _, client = start()
    report_actor_steps_before(client, 0)
    adders = [Adder(client) for _ in range(2)]
    limits = [make_limit(client, [a], 101, num_actors=4, num_replays=2) for a in adders]
    for _ in range(101):
        for adder, limit in zip(adders, limits, strict=True):
            if not limit.is_reached():
                adder.add(1)
    # Half of 101, rounded up, and one more of the actor that asks last.
    assert sum(adder.num_transitions for adder in adders) in (51, 52)


def test_a_server_that_does_not_know_the_steps_before_it_is_waited_for(start):
    _, client = start()
    limit = make_limit(client, [], 1000)
    assert limit.is_reached()
    report_actor_steps_before(client, 999)
    assert not limit.is_reached()


def test_a_server_that_is_gone_is_waited_for(start):
    server, client = start()
    report_actor_steps_before(client, 0)
    limit = make_limit(client, [], 1000)
    server.stop()
    assert limit.is_reached()


def test_no_limit_asks_nothing():
    limit = make_limit(None, [], None)
    assert not limit.is_reached()
