"""Tests of how the numbers of a transition are packed; `test_adder` has whole transitions."""

import dataclasses

import numpy as np
import pytest

from apex_agents.replay.transitions import PartialTransition, pack_outcome


def test_outcome():
    transition = PartialTransition(np.array([0.5, -1.0], np.float32), 7.0, 12, 3.5, 0.25, 2)
    assert pack_outcome(transition).tolist() == [0.5, -1.0, 3.5, 0.25, 12, 2]
    assert pack_outcome(transition).dtype == np.float32


# 1e39 is finite as a Python float, infinite as a float32.
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e39])
def test_no_outcome_unless_all_its_numbers_are_finite(bad):
    good = PartialTransition(np.array([0.5, 1.0]), 0.0, 0, 1.0, 0.9, 1)
    assert pack_outcome(good) is not None
    for wrong in (
        {"action": np.array([0.5, bad])},
        {"n_step_return": bad},
        {"n_step_discount": bad},
    ):
        assert pack_outcome(dataclasses.replace(good, **wrong)) is None
