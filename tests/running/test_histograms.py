"""Tests of the distributions that the learner's samples have."""

import csv
import pathlib
import types

import numpy as np
import pytest

from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.experiment import Experiment, RunConfig
from apex_agents.learning.samples import SampledTransitions
from apex_agents.running import histograms


def test_shares_by_hand():
    # 4 bins per factor of 10: 1 to 1.78, 3.16 to 5.62; 0 has a bin of its own.
    values = np.array([1.0, 1.7, 4.0, 0.0])
    weights = np.array([1.0, 1.0, 0.5, 2.5])
    bars = list(histograms.make_histogram(values, weights))
    assert [(bar.lower, bar.upper) for bar in bars] == [
        (0.0, pytest.approx(1e-6)),
        (1.0, pytest.approx(10**0.25)),
        (pytest.approx(10**0.5), pytest.approx(10**0.75)),
    ]
    assert [bar.sampled_share for bar in bars] == [1 / 4, 2 / 4, 1 / 4]
    assert [bar.replay_share for bar in bars] == [2.5 / 5, 2 / 5, 0.5 / 5]


def test_values_that_are_not_finite_are_in_no_bin():
    values = np.array([np.nan, 2.0, np.inf, -1.0])
    (bar,) = histograms.make_histogram(values, np.ones(4))
    assert (bar.lower, bar.sampled_share) == (pytest.approx(10**0.25), 1 / 4)


def test_rows_of_all_quantities_every_period(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    builder = ApexDQNBuilder(ApexDQNConfig())
    experiment = Experiment(builder, lambda *_: None, RunConfig(), str(tmp_path))
    samples = SampledTransitions(
        priority=np.array([1.0, 2.0]),
        td_error=np.array([1.0, 1.0]),
        age_steps=np.array([0, 50]),
        times_sampled=np.array([1, 1]),
        weight=np.array([1.0, 3.0]),
    )
    recent = types.SimpleNamespace(collect=lambda: samples)
    learner = types.SimpleNamespace(num_steps=7, recent_samples=recent)
    now = [1000.0]
    monkeypatch.setattr(histograms.time, "monotonic", lambda: now[0])
    logger = histograms.HistogramLogger(experiment)
    for seconds in (0, 29, 1):
        now[0] += seconds
        logger.write_if_due(learner)
    logger.close()
    with pathlib.Path(tmp_path, "logs", "learner_histograms.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["quantity"], float(row["replay_share"])) for row in rows] == 2 * [
        ("priority", 1 / 4),
        ("priority", 3 / 4),
        ("td_error", 1.0),
        ("age_steps", 1 / 4),
        ("age_steps", 3 / 4),
        ("times_sampled", 1.0),
    ]
    assert {row["learner_steps"] for row in rows} == {"7"}
