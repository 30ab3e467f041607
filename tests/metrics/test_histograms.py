"""Tests of the distributions that the learner's samples have."""

import numpy as np
import pytest

from apex_agents.metrics import histograms


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
