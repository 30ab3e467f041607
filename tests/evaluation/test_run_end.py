"""Tests of how a learner ends a run: when, what it announces, waits for and writes."""

from __future__ import annotations

import collections
import itertools
import json
import math
import pathlib
import threading
import types
from collections.abc import Callable, Iterator, Sequence

import pytest
import reverb
from sent_messages import report_last_step
from waiting import wait_for

from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.evaluation.run_end import RunEnd
from apex_agents.experiment import Experiment
from apex_agents.replay.messages import LAST_STEP, Evaluation, make_message_tables, read_latest
from apex_agents.replay.statistics import ReplayStatistics

EVALUATED = Evaluation(7.0, 1.0, 3, 8, 0)
LIMITED = RunConfig(max_learner_steps=8, evaluation=EvaluationConfig(max_wait_seconds=100.0))


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
