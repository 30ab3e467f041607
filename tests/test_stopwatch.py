"""Tests of the time that all processes of a run share."""

import dataclasses
import pickle
import time

import pytest
from waiting import Clock

from apex_agents.experiment import Progress, make_experiment
from apex_agents.presets import load_config
from apex_agents.stopwatch import STARTED_AT, Stopwatch


@pytest.fixture
def experiment():
    return make_experiment(load_config("apex_dqn_catch"))


def test_it_measures_from_its_start():
    clock = Clock(5000.0)
    stopwatch, earlier = Stopwatch(clock=clock), Stopwatch(4900.0, clock)
    clock.now += 2.5
    assert (stopwatch.seconds(), earlier.seconds()) == (2.5, 102.5)


def test_on_another_host_it_continues_by_the_clock_of_that_host():
    stopwatch = Stopwatch(7.0, Clock(107.0))  # That machine was started less than 2 minutes ago.
    before = time.monotonic()
    copy = pickle.loads(pickle.dumps(stopwatch))
    assert before - 100 <= copy.started_at <= time.monotonic() - 100


def test_in_a_node_the_time_between_pickling_and_the_start_of_its_process_counts(monkeypatch):
    pickled = pickle.dumps(Stopwatch(7.0, Clock(107.0)))
    monkeypatch.setenv(STARTED_AT, "12.25")
    assert pickle.loads(pickled).started_at == 12.25


@pytest.mark.parametrize("shift", [86_400.0, -3600.0])
def test_a_clock_that_is_set_is_no_time_that_passed(shift, experiment, monkeypatch):
    before, now = experiment.elapsed_seconds(), time.time
    monkeypatch.setattr(time, "time", lambda: now() + shift)
    restarted = pickle.loads(pickle.dumps(experiment))
    assert before <= restarted.elapsed_seconds() < before + 3600


def test_elapsed_time_continues_from_the_checkpoint(experiment):
    stopwatch = Stopwatch(0.0, Clock(12.5))
    resumed = dataclasses.replace(
        experiment, stopwatch=stopwatch, resumed_at=Progress(5, wall_time_seconds=1000.0)
    )
    assert resumed.elapsed_seconds() == 1012.5
