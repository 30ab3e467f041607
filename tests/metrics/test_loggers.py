"""Tests of the loggers: the rows that they write, and when."""

import csv
import dataclasses
import math
import pathlib
import types

import numpy as np
import pytest
import reverb
from waiting import Clock

from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import Episode
from apex_agents.experiment import Experiment
from apex_agents.learning.learner import SampledBatch
from apex_agents.metrics import loggers
from apex_agents.metrics.statistics import ReplayStatistics, add_statistics
from apex_agents.stopwatch import Stopwatch


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    (tmp_path / "logs").mkdir()
    builder, stopwatch = ApexDQNBuilder(ApexDQNConfig()), Stopwatch(0.0, clock=lambda: 12.5)
    return Experiment(builder, lambda *_: None, RunConfig(), str(tmp_path), stopwatch=stopwatch)


def rows(experiment: Experiment, node: str) -> list[dict[str, str]]:
    with pathlib.Path(experiment.workdir, "logs", f"{node}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_actor_logger(experiment: Experiment, clock: Clock) -> loggers.ActorLogger:
    adders = [
        types.SimpleNamespace(num_steps=10, num_not_finite=1),
        types.SimpleNamespace(num_steps=20, num_not_finite=2),
    ]
    source = types.SimpleNamespace(learner_steps=40)
    environment = types.SimpleNamespace(num_envs=2, num_failures=5)
    policy = types.SimpleNamespace(exploration={"epsilon": np.array([0.25, 0.125])})
    run = RunConfig(num_actors=5, num_envs_per_actor=2)
    experiment = dataclasses.replace(experiment, run=run)
    return loggers.ActorLogger(experiment, 3, environment, policy, adders, source, clock)


def test_actor_row_sums_up_the_environments(experiment, clock):
    logger = make_actor_logger(experiment, clock)
    logger.record([Episode(0, 10.0, 1.0, 100)])
    logger.record([])
    assert rows(experiment, "actor_3") == []  # Not due yet.
    clock.now += 10
    logger.record([Episode(1, 20.0, 3.0, 300), Episode(0, 60.0, 5.0, 500)])
    (row,) = rows(experiment, "actor_3")  # On disk before the file is closed.
    values = {name: float(value) for name, value in row.items()}
    assert values.pop("wall_time_seconds") == 12.5
    assert values == {
        "actor_steps_per_second": 3 * 2 / 10,
        "episodes": 3,
        "episode_return": (10 + 20 + 60) / 3,
        "clipped_return": (1 + 3 + 5) / 3,
        "episode_length": (100 + 300 + 500) / 3,
        "transitions": 10 + 20,
        "transitions_not_finite": 1 + 2,
        "environment_failures": 5,
        "parameters_learner_steps": 40,
    }
    logger.close()


def test_actor_rows_do_not_overlap(experiment, clock):
    logger = make_actor_logger(experiment, clock)
    logger.record([Episode(0, 10.0, 1.0, 100)])
    for _ in range(90):
        clock.now += 0.125
        logger.record([])
    # Due after 5 s, 41 and 40 lock-steps of 2 environments; the 10 that follow wait for a row.
    first, second = rows(experiment, "actor_3")
    assert [float(row["actor_steps_per_second"]) for row in (first, second)] == [82 / 5, 80 / 5]
    assert [float(row["episodes"]) for row in (first, second)] == [1, 0]
    assert math.isnan(float(second["episode_return"]))
    logger.close()


def test_every_environment_has_rows_of_its_own(experiment, clock):
    logger = make_actor_logger(experiment, clock)
    logger.record([Episode(0, 10.0, 1.0, 100)])
    logger.record([Episode(0, 20.0, 2.0, 200), Episode(1, 60.0, 5.0, 500)])
    clock.now += 5
    logger.record([])
    clock.now += 1
    logger.record([Episode(1, 70.0, 6.0, 600)])
    assert len(rows(experiment, "actor_3_envs")) == 2
    logger.close()
    # Actor 3 of 5 has environments 3 and 8; one without an episode has no row.
    columns = (
        "env_index",
        "epsilon",
        "episodes",
        "episode_return",
        "clipped_return",
        "episode_length",
    )
    found = rows(experiment, "actor_3_envs")
    assert [tuple(float(row[name]) for name in columns) for row in found] == [
        (3, 0.25, 2, 15.0, 1.5, 150.0),
        (8, 0.125, 1, 60.0, 5.0, 500.0),
        (8, 0.125, 1, 70.0, 6.0, 600.0),
    ]


class Poller:
    """Statistics of two servers that a test sets."""

    def __init__(self, *parts: ReplayStatistics | None):
        self.parts = list(parts)

    @property
    def latest(self) -> ReplayStatistics:
        return add_statistics([part for part in self.parts if part is not None])


def test_replay_row_counts_since_the_row_before(experiment, clock):
    first = ReplayStatistics(actor_steps=1400, inserted=400, sampled=1000, replay_size=300)
    second = ReplayStatistics(actor_steps=1000, inserted=900, sampled=900, replay_size=100)
    poller = Poller(first, None)  # The second server has not answered yet.
    logger = loggers.ReplayLogger(experiment, poller, clock)
    clock.now += 4
    logger.write_if_due()  # Not due.
    clock.now += 4
    poller.parts = [
        first._replace(actor_steps=1500, inserted=500, sampled=1800, replay_size=350),
        second,
    ]
    logger.write_if_due()
    clock.now += 8
    # The first one has been restarted, and counts from 0 again.
    poller.parts = [
        first._replace(actor_steps=1508, inserted=8, sampled=0, replay_size=8),
        second._replace(actor_steps=1080, inserted=980, sampled=940, replay_size=180),
    ]
    logger.write_if_due()
    rows_found = rows(experiment, "replay")
    assert [row.pop("wall_time_seconds") for row in rows_found] == ["12.5"] * len(rows_found)
    assert [{name: float(value) for name, value in row.items()} for row in rows_found] == [
        {
            "actor_steps": 2500,
            "replay_size": 450,
            "inserts_per_second": (500 - 400) / 8,
            "samples_per_second": (1800 - 1000) / 8,
            "samples_per_insert": 2700 / 1400,
        },
        {
            "actor_steps": 2588,
            "replay_size": 188,
            "inserts_per_second": (980 - 900) / 8,
            "samples_per_second": (940 - 900) / 8,
            "samples_per_insert": 940 / 988,
        },
    ]


def test_distributions_are_written_every_period(experiment, clock):
    # The first transition stands for one in the replay, the second for three.
    info = reverb.SampleInfo(
        key=None,
        probability=np.array([1.0, 1 / 3]),
        table_size=np.array([1, 1]),
        priority=np.array([1.0, 2.0]),
        times_sampled=np.array([1, 1]),
    )
    batch = SampledBatch(info, np.array([50, 0]), np.array([1.0, 1.0]), learner_steps=50)
    learner = types.SimpleNamespace(num_steps=7, recent_samples=[batch])
    logger = loggers.HistogramLogger(experiment, learner, clock)
    logger.write_if_due()  # Nothing has been sampled yet.
    for seconds in (0, 29, 1):
        clock.now += seconds
        learner.num_steps += 1
        logger.write_if_due()
    logger.write()  # The same as the last time: left out.
    found = rows(experiment, "learner_histograms")
    assert [(row["quantity"], float(row["replay_share"])) for row in found] == 2 * [
        ("priority", 1 / 4),
        ("priority", 3 / 4),
        ("td_error", 1.0),
        ("age_steps", 1 / 4),
        ("age_steps", 3 / 4),
        ("times_sampled", 1.0),
    ]
    assert [row["learner_steps"] for row in found] == 6 * ["8"] + 6 * ["10"]
    learner.num_steps += 1
    logger.write()  # The end of a run does so.
    assert rows(experiment, "learner_histograms")[-1]["learner_steps"] == "11"


def test_staleness_is_written_beside_the_rows_of_the_node(experiment, clock):
    learner = types.SimpleNamespace(num_steps=0, recent_samples=[0, 1, 4, 5])
    logger = loggers.HistogramLogger(experiment, learner, clock, node="learner_0")
    learner.num_steps = 4
    logger.write()
    bins = [
        (row["quantity"], round(float(row["lower"]), 2), row["sampled_share"], row["replay_share"])
        for row in rows(experiment, "learner_0_histograms")
    ]
    assert bins == [
        ("staleness_steps", lower, share, share)
        for lower, share in ((0.0, "0.25"), (1.0, "0.25"), (3.16, "0.5"))
    ]


def test_a_learner_that_follows_begins_behind_its_first_parameters(experiment, clock):
    # They are those of the last histogram of the process before it.
    learner = types.SimpleNamespace(num_steps=-1, recent_samples=[1])
    logger = loggers.HistogramLogger(experiment, learner, clock, node="learner_0")
    for num_steps in (7, 7, 8):
        learner.num_steps = num_steps
        logger.write_if_due()
    logger.write()
    assert [row["learner_steps"] for row in rows(experiment, "learner_0_histograms")] == ["8"]


def learner_step(steps: int, loss: float) -> dict[str, float]:
    amounts = {"num_updates": 4, "waiting_seconds": 0.25}
    return {"learner_steps": steps, "loss": loss, "steps_skipped": steps // 8, **amounts}


def test_a_row_of_the_learner_has_means_and_newest_counts(experiment, clock):
    statistics = ReplayStatistics(actor_steps=1400, inserted=400, sampled=1000, replay_size=300)
    poller = types.SimpleNamespace(latest=statistics)
    logger = loggers.make_learner_logger(experiment, poller, clock)
    clock.now += 2
    logger.write(learner_step(4, 0.5))  # The first row comes at once.
    clock.now += 0.25
    logger.write(learner_step(8, 1.0))
    poller.latest = statistics._replace(actor_steps=1500, inserted=500)
    clock.now += 0.25
    logger.write(learner_step(12, 2.0))
    logger.write_row()  # Nothing has been recorded since.
    first, second = rows(experiment, "learner")
    assert float(first.pop("wall_time_seconds")) == 12.5
    assert {name: float(value) for name, value in first.items()} == {
        "learner_steps": 4,
        "loss": 0.5,
        "steps_skipped": 0,
        "learner_steps_per_second": 4 / 2,
        "data_wait_fraction": 0.25 / 2,
        "actor_steps": 1400,
        "replay_size": 300,
        "samples_per_insert": 1000 / 400,
    }
    assert (second["learner_steps"], second["steps_skipped"], second["loss"]) == ("12", "1", "1.5")
    assert float(second["learner_steps_per_second"]) == (4 + 4) / 0.5
    assert float(second["data_wait_fraction"]) == (0.25 + 0.25) / 0.5
    assert float(second["samples_per_insert"]) == 1000 / 500
    logger.write(learner_step(16, 3.0))
    clock.now += 1
    logger.close()
    assert rows(experiment, "learner")[-1]["loss"] == "3.0"


def test_rows_of_the_learner_come_less_often_in_a_longer_run(experiment, clock):
    poller = types.SimpleNamespace(latest=ReplayStatistics())
    logger = loggers.make_learner_logger(experiment, poller, clock)
    written = []
    for step in range(1001):
        clock.now += 0.25
        logger.write(learner_step(step, 0.0))
        written.append(len(rows(experiment, "learner")))
    assert [written[4 * seconds] for seconds in (0, 1, 5)] == [1, 3, 11]
    assert 30 < written[4 * 50] < 40
    assert written[4 * 250] - written[4 * 200] == 10


def test_numbers_of_info_are_columns(experiment, clock):
    logger = make_actor_logger(experiment, clock)
    logger._environment.metric_names = ("is_success", "x")
    for success, x in ((1.0, 4.0), (0.0, 8.0)):
        logger.record([Episode(0, 1.0, 1.0, 1, (("is_success", success), ("x", x)))])
    logger.record([Episode(1, 1.0, 1.0, 1, (("x", 9.0),))])
    clock.now += 10
    logger.record([])
    clock.now += 10
    logger.record([])
    first, second = rows(experiment, "actor_3")
    # One of three: an episode without it has failed where others have it.
    assert (round(float(first["is_success"]), 6), float(first["x"])) == (0.333333, 7.0)
    assert math.isnan(float(second["is_success"])) and math.isnan(float(second["x"]))
    logger.close()


def test_an_episode_without_success_has_failed_where_others_have_it():
    episodes = [Episode(0, 1.0, 1.0, 1, metrics) for metrics in ((("is_success", 1.0),), ())]
    assert loggers.mean_metrics(["is_success"], episodes) == {"is_success": 0.5}
    assert math.isnan(loggers.mean_metrics(["is_success"], episodes[1:])["is_success"])
    episodes += [Episode(0, 1.0, 1.0, 1, (("is_success", 0.0),))] * 2
    assert loggers.mean_metrics(["is_success"], episodes) == {"is_success": 0.25}
