"""Tests of how the numbers of a transition are packed; `test_adder` has whole transitions."""

import numpy as np
import pytest

from apex_agents.replay.transitions import pack_outcome


def test_outcome():
    action = np.array([0.5, -1.0], np.float32)
    outcome = pack_outcome(action, 3.5, 0.25, learner_steps=12, num_steps=2)
    assert outcome.tolist() == [0.5, -1.0, 3.5, 0.25, 12, 2]
    assert outcome.dtype == np.float32


# 1e39 is finite as a Python float, infinite as a float32.
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e39])
def test_no_outcome_unless_all_its_numbers_are_finite(bad):
    good = (np.array([0.5, 1.0]), 1.0, 0.9, 0, 1)
    assert pack_outcome(*good) is not None
    for index, wrong in enumerate((np.array([0.5, bad]), bad, bad)):
        assert pack_outcome(*good[:index], wrong, *good[index + 1 :]) is None
