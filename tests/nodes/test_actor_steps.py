"""Tests of the steps that actors report and of their limit, with a real replay server."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest
import reverb
from waiting import wait_for

from apex_agents.config import RunConfig
from apex_agents.nodes.actor_steps import ActorStepCounter, StepReporter
from apex_agents.nodes.node import await_answer
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.statistics import read_actor_steps


class Adder:
    """Counts what it is given."""

    def __init__(self, num_steps: int = 0):
        self.num_steps = self.num_items = num_steps
        self.num_not_finite = 0
        self.num_flushes = 0

    def add(self, number: int) -> None:
        self.num_steps += number

    def flush(self) -> None:
        self.num_flushes += 1

    def close(self) -> None:
        """Do nothing."""


class Clock:
    """Stands still until it is told the time."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Replay:
    """A server that has the tables for steps, and maybe a counter."""

    def __init__(self, port: int):
        self.port = port
        self.server = reverb.Server(make_message_tables({}), port)
        self.client = reverb.Client(f"localhost:{port}")
        assert await_answer([self.client], lambda: False)
        self.counter: ActorStepCounter | None = None

    def count(self, path: pathlib.Path) -> ActorStepCounter:
        self.counter = ActorStepCounter(self.client, path)
        return self.counter

    def stop(self) -> None:
        if self.counter is not None:
            self.counter.close()
            self.counter = None
        self.server.stop()


@pytest.fixture
def start(reserved_port) -> Iterator[Callable[..., Replay]]:
    """Starts replay servers, which follow each other in one run."""
    replays: list[Replay] = []

    def start_replay(port: int | None = None) -> Replay:
        replays.append(Replay(port or reserved_port()))
        return replays[-1]

    yield start_replay
    for replay in replays:
        replay.stop()


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "actor_steps.json"


@pytest.fixture
def make_reporter() -> Iterator[Callable[..., StepReporter]]:
    reporters = []

    def make(
        replay: Replay,
        adders: list[Adder],
        limit: int | None = None,
        index: int = 0,
        num_actors: int = 1,
        num_replays: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> StepReporter:
        run = RunConfig(num_actors=num_actors, num_replays=num_replays, max_actor_steps=limit)
        reporters.append(StepReporter(replay.client, index, adders, run, clock))
        return reporters[-1]

    yield make
    for reporter in reporters:
        reporter.close()


def wait_for_counts(replay: Replay, *counts: int) -> None:
    wait_for(lambda: read_actor_steps(replay.client) == list(counts))


def test_one_actor_ends_within_a_lock_step_of_the_limit(start, make_reporter, path):
    replay = start()
    path.write_text("100")  # Earlier versions wrote it so.
    replay.count(path)
    adders = [Adder(), Adder()]
    reporter = make_reporter(replay, adders, 1000)
    while not reporter.is_limit_reached():
        for adder in adders:
            adder.add(4)
    assert 900 <= sum(adder.num_steps for adder in adders) < 900 + 8
    # An eighth of what is left each time: the replay is seldom asked.
    assert adders[0].num_flushes < 40
    assert reporter.is_limit_reached()
    reporter.close()
    wait_for_counts(replay, 100 + sum(adder.num_steps for adder in adders))


def test_actors_of_unequal_speed_share_the_limit(start, make_reporter, path):
    replay = start()
    replay.count(path)
    adders = [Adder() for _ in range(3)]
    reporters = [
        make_reporter(replay, [adder], 3000, index, num_actors=3)
        for index, adder in enumerate(adders)
    ]
    speeds = (1, 5, 10)
    while not all(reporter.is_limit_reached() for reporter in reporters):
        for adder, reporter, speed in zip(adders, reporters, speeds, strict=True):
            for _ in range(speed):
                if not reporter.is_limit_reached():
                    adder.add(2)
    assert 3000 <= sum(adder.num_steps for adder in adders) < 1.02 * 3000
    # The fastest does what the slowest leaves.
    assert adders[0].num_steps < 1000 < adders[2].num_steps


def test_the_actors_of_each_server_have_an_equal_part(start, make_reporter, path):
    replay = start()
    replay.count(path)
    adders = [Adder() for _ in range(2)]
    reporters = [
        make_reporter(replay, [adder], 101, index, num_actors=4, num_replays=2)
        for index, adder in zip((1, 3), adders, strict=True)
    ]
    for _ in range(101):
        for adder, reporter in zip(adders, reporters, strict=True):
            if not reporter.is_limit_reached():
                adder.add(1)
    # Half of 101, rounded up, and one more of an actor that asks while a report is under way.
    assert 51 <= sum(adder.num_steps for adder in adders) <= 52


def test_a_server_that_does_not_know_the_steps_is_waited_for(start, make_reporter, path):
    replay = start()
    reporter = make_reporter(replay, [Adder()], 1000)
    assert reporter.is_limit_reached()
    path.write_text("999")
    replay.count(path)
    assert not reporter.is_limit_reached()


def test_a_server_that_is_gone_is_waited_for(start, make_reporter):
    replay = start()
    reporter = make_reporter(replay, [Adder()], 1000)
    replay.stop()
    assert reporter.is_limit_reached()


def test_without_a_limit_an_actor_reports_every_second(start, make_reporter, path):
    replay, clock, adder = start(), Clock(), Adder()
    replay.count(path)
    reporter = make_reporter(replay, [adder], clock=clock)
    assert not reporter.is_limit_reached()
    wait_for_counts(replay, 0)
    for clock.now, num_steps, expected in ((0.9, 5, 0), (1.0, 2, 7), (1.9, 1, 7), (2.1, 1, 9)):
        adder.add(num_steps)
        assert not reporter.is_limit_reached()
        wait_for_counts(replay, expected)
    assert adder.num_flushes == 0


def test_an_actor_that_is_restarted_continues_its_count(start, make_reporter, path):
    replay = start()
    replay.count(path)
    clock, adder = Clock(), Adder(30)
    killed = make_reporter(replay, [adder], index=1, clock=clock)
    killed.is_limit_reached()
    adder.add(4)  # These are lost: the next report would come after a second.
    wait_for_counts(replay, 0, 30)
    restarted = make_reporter(replay, [Adder(12)], index=1)
    restarted.is_limit_reached()
    restarted.close()
    wait_for_counts(replay, 0, 42)


def test_nothing_is_lost_or_doubled_when_a_server_is_killed(start, make_reporter, path):
    first, clock, adder = start(), Clock(), Adder(5)
    first.count(path)
    reporter = make_reporter(first, [adder], index=1, clock=clock)
    reporter.is_limit_reached()
    wait_for_counts(first, 0, 5)
    first.stop()
    path.write_text("[7, 3]")  # The newest report is missing.
    second = start(first.port)
    second.count(path)
    wait_for_counts(second, 7, 5)  # It is sent again.
    adder.add(10)
    clock.now = 1.0
    reporter.is_limit_reached()
    wait_for_counts(second, 7, 15)
    reporter.close()


def test_counts_are_kept_on_disk(start, make_reporter, path):
    replay = start()
    counter = replay.count(path)
    for index in (2, 0):
        reporter = make_reporter(replay, [Adder(10 + index)], index=index)
        reporter.is_limit_reached()
        reporter.close()
    counter.close()
    assert json.loads(path.read_text()) == [10, 0, 12]
    again = start()
    again.count(path)
    wait_for_counts(again, 10, 0, 12)


def test_a_corrupted_count_begins_at_zero(start, path, caplog):
    path.write_text("no number")
    start().count(path).close()
    assert json.loads(path.read_text()) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
