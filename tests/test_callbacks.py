"""Tests of the function that is called after each evaluation; runs are in test_training.py."""

import os
import pathlib
import signal

import pytest

from apex_agents.callbacks import EvaluationCallback
from apex_agents.metrics.exports import Scalars

ROW = {
    "evaluator/mean_return": 2.0,
    "evaluator/actor_steps": 100.0,
    "evaluator/num_episodes": 5.0,
    "evaluator/learner_steps": 7.0,
    "evaluator/is_success": 0.5,
    "evaluator/environment_failures": 0.0,
}


@pytest.fixture
def signals(monkeypatch) -> list[int]:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    return sent


def call(result: object, signals: list[int], is_stopping: bool = False) -> EvaluationCallback:
    records = []

    def function(record):
        records.append(record)
        if isinstance(result, BaseException):
            raise result
        return result

    callback = EvaluationCallback(function, pathlib.Path("run"))
    callback.is_stopping = is_stopping
    callback.write(
        [Scalars(7, "learner_steps", ROW), Scalars(7, "learner_steps", {"learner/x": 1})]
    )
    (record,) = records
    assert (record.actor_steps, record.learner_steps, record.mean_return) == (100, 7, 2.0)
    assert (record.num_episodes, record.metrics) == (5, {"is_success": 0.5})
    return callback


def test_it_is_busy_while_the_function_runs():
    seen = []
    callback = EvaluationCallback(lambda record: seen.append(callback.is_busy), pathlib.Path("run"))
    callback.write([Scalars(7, "learner_steps", ROW)])
    assert (seen, callback.is_busy) == ([True], False)


def test_what_else_it_returns_is_said_once(signals, caplog):
    callback = call(1, signals)
    callback.write([Scalars(8, "learner_steps", ROW)] * 2)
    assert not signals and not callback.reason
    assert caplog.text.count("returned 1, which has no effect") == 1


@pytest.mark.parametrize(("result", "is_over"), [(True, True), (False, False), (None, False)])
def test_true_ends_the_run(result, is_over, signals):
    callback = call(result, signals)
    assert signals == ([signal.SIGINT] if is_over else [])
    assert bool(callback.reason) == is_over and callback.error is None


@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), SystemExit(1), KeyboardInterrupt()])
def test_an_error_ends_the_run_and_is_kept(error, signals):
    callback = call(error, signals)
    assert (signals, callback.error, callback.reason) == ([signal.SIGINT], error, "")


@pytest.mark.parametrize("result", [True, ValueError()])
def test_no_signal_is_sent_to_a_run_that_stops_or_is_over(result, signals):
    call(result, signals, is_stopping=True)
    assert signals == []
