"""Tests of the end of a run: its limits, its announcement, and the steps counted for it."""

from __future__ import annotations

import collections
import itertools
import json
import math
import pathlib
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import reverb
from sent_messages import report_last_step
from waiting import wait_for

from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.experiment import Experiment
from apex_agents.metrics.statistics import ReplayStatistics, read_actor_steps
from apex_agents.nodes.node import await_answer
from apex_agents.replay.messages import LAST_STEP, Evaluation, make_message_tables, read_latest
from apex_agents.run_end import ActorStepCounter, RunEnd, StepReporter, end_reason

EVALUATED = Evaluation(7.0, 1.0, 3, 8, 0)
LIMITED = RunConfig(max_learner_steps=8, evaluation=EvaluationConfig(max_wait_seconds=100.0))
ALL_LIMITS = RunConfig(
    max_learner_steps=100, max_actor_steps=1000, max_seconds=60, target_return=0.9
)


@pytest.mark.parametrize(
    ("run", "reached", "reason"),
    [
        (ALL_LIMITS, {}, None),
        (ALL_LIMITS, {"learner_steps": 99, "actor_steps": 999, "seconds": 59.9}, None),
        (ALL_LIMITS, {"learner_steps": 100}, "limit of 100 learner steps reached"),
        (ALL_LIMITS, {"actor_steps": 1000}, "limit of 1000 actor steps reached"),
        (ALL_LIMITS, {"seconds": 60.0}, "limit of 60 seconds reached"),
        (ALL_LIMITS, {"mean_return": 0.89}, None),
        (ALL_LIMITS, {"mean_return": 0.9, "learner_steps": 100}, "target return 0.9 reached"),
        # Rounding keeps no run from its target: 0.8999999999999998, and numbers of float32.
        (ALL_LIMITS, {"mean_return": np.mean([0.9] * 20)}, "target return 0.9 reached"),
        (ALL_LIMITS, {"mean_return": np.float32(0.9)}, "target return 0.9 reached"),
        (RunConfig(target_return=-0.1), {"mean_return": -0.11}, None),
        (RunConfig(target_return=0.0), {"mean_return": 0.0}, "target return 0 reached"),
        (RunConfig(), {"mean_return": 1e9, "learner_steps": 10**9, "seconds": 1e9}, None),
    ],
)
def test_a_limit_or_the_target_ends_a_run(run, reached, reason):
    evaluation = None
    if "mean_return" in reached:
        evaluation = EVALUATED._replace(mean_return=np.float64(reached.pop("mean_return")))
    assert end_reason(run, evaluation=evaluation, **reached) == reason


class StopEvent:
    """A program that stops when the learner has waited so often."""

    def __init__(self, num_waits: float):
        self.waits_left = num_waits

    def is_set(self) -> bool:
        return self.waits_left <= 0

    def wait(self, timeout: float) -> None:
        self.waits_left -= 1


class Poller:
    """Has statistics by hand."""

    def __init__(self, evaluation: Evaluation | None = None):
        self.latest = ReplayStatistics(evaluation=evaluation, actor_steps=20)

    def close(self) -> None:
        self.latest = ReplayStatistics()


class Learner:
    """A learner after so many steps, which counts what is asked of it."""

    def __init__(self, num_steps: int = 8):
        self.num_steps = num_steps
        self.num_published = 0
        self.is_closed = False

    def publish(self) -> None:
        self.num_published += 1

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def workdir(tmp_path) -> pathlib.Path:
    (tmp_path / "summary.json").write_text("{}")  # Left by a learner that was restarted.
    return tmp_path


@pytest.fixture
def make_end(workdir) -> Iterator[Callable[..., RunEnd]]:
    """Makes the end of a run with the settings and parts given; its program stops afterwards."""
    stops = []

    def make(
        run: RunConfig = LIMITED,
        poller: Poller | None = None,
        num_waits: float = 1,
        clients: Sequence[reverb.Client] = (),
        **arguments,
    ) -> RunEnd:
        stopwatch = types.SimpleNamespace(seconds=lambda: 12.5)
        experiment = Experiment(None, None, run, str(workdir), stopwatch=stopwatch)
        stops.append(StopEvent(num_waits))
        return RunEnd(experiment, clients, poller or Poller(), stops[-1], **arguments)

    yield make
    for stop in stops:
        stop.waits_left = 0
    # Threads that ask a server which is away end, too.
    wait_for(lambda: not [t for t in threading.enumerate() if "_withdraw_" in t.name])


def summary(workdir: pathlib.Path) -> dict:
    return json.loads((workdir / "summary.json").read_text())


def test_it_is_due_at_a_limit_or_when_the_program_stops(make_end, workdir):
    end = make_end()
    assert not (workdir / "summary.json").exists()
    assert [end.is_due(0), end.is_due(7), end.is_due(8)] == [False, False, True]
    assert end.is_due(0)  # It stays due: the target's evaluation may be followed by a worse one.
    assert make_end(num_waits=0).is_due(0)
    assert make_end(RunConfig(max_seconds=12.0)).is_due()
    assert not make_end(RunConfig(max_seconds=13.0)).is_due()


@pytest.mark.parametrize(
    ("target", "evaluation", "reason"),
    [
        (None, EVALUATED, "limit of 8 learner steps reached"),
        (None, EVALUATED._replace(learner_steps=7), None),
        (None, EVALUATED._replace(learner_steps=9), None),  # Before a restart of the learner.
        (7.0, EVALUATED._replace(learner_steps=7), "target return 7 reached"),
        (7.5, EVALUATED._replace(learner_steps=7), None),
        (None, None, None),
    ],
)
def test_a_learner_waits_for_the_evaluation_of_its_last_step(
    make_end, workdir, target, evaluation, reason
):
    end = make_end(RunConfig(max_learner_steps=8, target_return=target), Poller(evaluation))
    assert end.is_due(8)
    learner = Learner()
    assert end.conclude(learner, lambda: True) is (reason is not None)
    assert summary(workdir) == {
        "finished": reason is not None,
        "reason": reason or "stopped from outside",
        "learner_steps": 8,
        "actor_steps": 20,
        "wall_time_seconds": 12.5,
    }
    assert (learner.num_published, learner.is_closed) == (1, True)


@pytest.mark.parametrize(("steps", "num_waits"), [(0, 1), (5, 0)])
def test_without_a_step_or_a_reason_nothing_is_evaluated(make_end, workdir, steps, num_waits):
    """The run is over before its first step (12.5 s have passed), or the program stops."""
    end = make_end(RunConfig(max_seconds=None if steps else 12.0), num_waits=num_waits)
    assert end.is_due(steps)
    learner = Learner(steps)
    assert end.conclude(learner, lambda: True) is (steps == 0)
    assert summary(workdir)["finished"] is (steps == 0)
    assert (learner.num_published, learner.is_closed) == (0, True)


@pytest.mark.parametrize(
    ("saves", "finished"), [([True], True), ([False, True], True), ([False, False], False)]
)
def test_what_cannot_be_saved_is_tried_again_after_the_evaluation(
    make_end, workdir, saves, finished
):
    end = make_end(poller=Poller(EVALUATED))
    assert end.is_due(8)
    left = iter(saves)
    assert end.conclude(Learner(), lambda: next(left))
    assert list(left) == []
    assert summary(workdir)["finished"] is finished


@pytest.mark.parametrize(
    ("times", "evaluated_at", "is_late"),
    [
        (itertools.count(5000.0), 5000, False),
        (itertools.count(5000.0), 5099, False),
        (itertools.count(5000.0), 5101, True),
        (itertools.count(5000.0), None, True),
        # Ctrl-Z, and fg: time for which the learner was stopped does not count.
        (itertools.chain([0.0, 1.0], itertools.count(7200.0)), 7230, False),
    ],
)
def test_a_learner_waits_no_longer_than_it_may(make_end, workdir, times, evaluated_at, is_late):
    poller = Poller()

    def tell_time() -> float:
        if (now := next(times)) == evaluated_at:  # The evaluator may have been restarted.
            poller.latest = ReplayStatistics(evaluation=EVALUATED)
        return now

    end = make_end(poller=poller, num_waits=1000, clock=tell_time)
    assert end.is_due(8)
    assert end.conclude(Learner(), lambda: True)
    assert summary(workdir)["finished"] is True
    assert ("within 100 s" in summary(workdir)["reason"]) is is_late


def test_an_end_that_was_lost_is_withdrawn(serve, make_end):
    client = serve(*make_message_tables({}))

    def has_last_step() -> bool:
        return client.server_info()[LAST_STEP].current_size > 0

    report_last_step(client, 7)
    assert has_last_step()
    make_end(clients=[reverb.Client("localhost:1"), client])
    wait_for(lambda: not has_last_step())


def test_an_end_is_announced_on_all_servers_and_on_one_that_has_moved(serve, make_end):
    servers = [serve(*make_message_tables({})) for _ in range(3)]
    clients, poller = collections.UserList(servers[:2]), Poller()
    end = make_end(poller=poller, num_waits=math.inf, clients=clients)
    assert end.is_due(8)
    concluding = threading.Thread(target=end.conclude, args=(Learner(), lambda: True))
    concluding.start()
    wait_for(lambda: [last_step(server) for server in servers] == [8, 8, None])
    clients[1] = servers[2]
    wait_for(lambda: last_step(servers[2]) == 8)
    poller.latest = ReplayStatistics(evaluation=EVALUATED)
    concluding.join(60)
    assert not concluding.is_alive()


def last_step(client: reverb.Client) -> int | None:
    if not client.server_info()[LAST_STEP].current_size:
        return None
    return int(read_latest(client, LAST_STEP))


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
    assert not reporter.knows_counts
    path.write_text("999")
    replay.count(path)
    assert not reporter.is_limit_reached()
    assert reporter.knows_counts


def test_a_server_that_is_gone_is_waited_for(start, make_reporter):
    replay = start()
    reporter = make_reporter(replay, [Adder()], 1000)
    replay.stop()
    assert reporter.is_limit_reached()
    assert not reporter.knows_counts


def test_without_a_limit_an_actor_reports_every_second(start, make_reporter, path):
    replay, clock, adder = start(), Clock(), Adder()
    replay.count(path)
    reporter = make_reporter(replay, [adder], clock=clock)
    assert not reporter.is_limit_reached()
    wait_for_counts(replay, 0)
    # The first reports follow each other after 0.1, 0.2, 0.4 and 0.8 s, later ones after a second.
    early = ((0.05, 5, 0), (0.125, 2, 7), (0.25, 1, 7), (0.375, 1, 9), (0.8, 0, 9), (1.7, 0, 9))
    for clock.now, num_steps, expected in (*early, (2.6, 5, 9), (2.75, 2, 16), (3.7, 1, 16)):
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
