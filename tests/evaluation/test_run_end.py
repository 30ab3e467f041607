"""Tests of how the learner ends a run: what it announces, and what it waits for."""

from __future__ import annotations

import itertools
import types

import pytest
import reverb
from sent_messages import report_last_step

from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.evaluation import run_end
from apex_agents.evaluation.run_end import RunEnd, await_evaluation, withdraw_last_step
from apex_agents.replay.messages import (
    LAST_STEP,
    Evaluation,
    make_last_step_table,
    read_latest,
)
from apex_agents.replay.statistics import ReplayStatistics

EVALUATED = Evaluation(7.0, 1.0, 3, 8, 0)


class StopEvent:
    """A program that stops when the learner has waited so often."""

    def __init__(self, num_waits: float):
        self._waits_left = num_waits

    def is_set(self) -> bool:
        return self._waits_left <= 0

    def wait(self, timeout: float) -> None:
        self._waits_left -= 1


@pytest.mark.parametrize(
    ("target", "evaluation", "is_awaited"),
    [
        (None, EVALUATED, False),
        (None, EVALUATED._replace(learner_steps=7), True),
        (None, EVALUATED._replace(learner_steps=9), True),  # Before a restart of the learner.
        (7.0, EVALUATED._replace(learner_steps=7), False),
        (7.5, EVALUATED._replace(learner_steps=7), True),
        (None, None, True),
    ],
)
def test_a_learner_waits_for_the_evaluation_of_its_last_step(
    monkeypatch, target, evaluation, is_awaited
):
    poller = types.SimpleNamespace(latest=ReplayStatistics(evaluation=evaluation))
    monkeypatch.setattr(run_end.lp, "stop_event", lambda: StopEvent(1))
    run = RunConfig(target_return=target)
    looks = []
    assert await_evaluation(run, poller, 8, lambda: looks.append(1)) is not is_awaited
    assert looks == [1]


@pytest.mark.parametrize(
    ("evaluated_at", "is_late"), [(0, False), (99, False), (101, True), (None, True)]
)
def test_a_learner_waits_no_longer_than_it_may(monkeypatch, evaluated_at, is_late):
    times = itertools.count(5000.0)
    poller = types.SimpleNamespace(latest=ReplayStatistics())

    def tell_time() -> float:
        now = next(times)
        if now - 5000 == evaluated_at:  # Until then the evaluator may have been restarted.
            poller.latest = ReplayStatistics(evaluation=EVALUATED)
        return now

    monkeypatch.setattr(run_end.lp, "stop_event", lambda: StopEvent(1000))
    run = RunConfig(evaluation=EvaluationConfig(max_wait_seconds=100.0))
    if is_late:
        with pytest.raises(TimeoutError, match="within 100 s"):
            await_evaluation(run, poller, 8, clock=tell_time)
    else:
        assert await_evaluation(run, poller, 8, clock=tell_time)


def test_time_for_which_the_learner_was_stopped_does_not_count(monkeypatch):
    poller = types.SimpleNamespace(latest=ReplayStatistics())
    times = itertools.chain([0.0, 1.0], [7200.0], itertools.count(7201.0))  # Ctrl-Z, and fg.

    def tell_time() -> float:
        if (now := next(times)) == 7230.0:
            poller.latest = ReplayStatistics(evaluation=EVALUATED)
        return now

    monkeypatch.setattr(run_end.lp, "stop_event", lambda: StopEvent(1000))
    run = RunConfig(evaluation=EvaluationConfig(max_wait_seconds=100.0))
    assert await_evaluation(run, poller, 8, clock=tell_time)


def test_an_end_that_was_lost_is_withdrawn(serve):
    client = serve(make_last_step_table())

    def has_last_step() -> bool:
        return client.server_info()[LAST_STEP].current_size > 0

    withdraw_last_step(client, lambda: False)  # There is none.
    report_last_step(client, 7)
    assert has_last_step()
    withdraw_last_step(client, lambda: False)
    assert not has_last_step()
    report_last_step(client, 9)
    assert has_last_step()
    # Of a server that is away, until told to stop.
    answers = itertools.chain([False] * 3, itertools.repeat(True))
    withdraw_last_step(reverb.Client("localhost:1"), lambda: next(answers))
    assert next(answers)


def test_an_end_is_announced_on_all_servers_and_on_one_that_has_moved(serve):
    servers = [serve(make_last_step_table()) for _ in range(3)]
    clients = servers[:2]
    end = RunEnd(clients, lambda: False)
    end.follow(1)  # Before the end there is nothing to announce.
    end.announce(7)
    assert [int(read_latest(client, LAST_STEP)) for client in clients] == [7, 7]
    clients[1] = servers[2]
    end.follow(1)
    assert int(read_latest(servers[2], LAST_STEP)) == 7
    end.close()
