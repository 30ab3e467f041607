"""Tests of reading histograms: bins in their places, incomplete histograms left out."""

import numpy as np

from apex_agents.plotting.histogram_figures import read_histograms


def columns(rows) -> dict[str, np.ndarray]:
    """Return columns of rows (learner steps, quantity, lower end, sampled share, replay share)."""
    names = ("learner_steps", "quantity", "lower", "sampled_share", "replay_share")
    table = dict(zip(names, zip(*rows, strict=True), strict=True))
    return {
        name: np.array(values, None if name == "quantity" else np.float64)
        for name, values in table.items()
    }


def test_bins_are_told_by_their_lower_ends():
    found = read_histograms(
        columns(
            [
                (1, "priority", 0.1, 0.25, 0.5),
                (1, "priority", 10**0.25, 0.75, 0.5),
                (1, "age_steps", 1.0, 1.0, 1.0),
                (9, "priority", 10**-0.75, 1.0, 1.0),
            ]
        ),
        "priority",
    )
    assert found.learner_steps.tolist() == [1, 1, 9]
    assert found.bins.tolist() == [-1, 0.25, -0.75]
    assert found.sampled.tolist() == [0.25, 0.75, 1]
    assert found.replay.tolist() == [0.5, 0.5, 1]
    assert not found.is_zero.any()


def test_the_bin_from_zero_on_is_below_the_others():
    rows = [(1, "age_steps", 0.0, 0.4, 0.1), (1, "age_steps", 10.0, 0.6, 0.9)]
    found = read_histograms(columns(rows), "age_steps")
    assert found.bins.tolist() == [0.75, 1]
    assert found.is_zero.tolist() == [True, False]
    only_zero = read_histograms(columns([(1, "age_steps", 0.0, 1.0, 1.0)]), "age_steps")
    assert only_zero.is_zero.tolist() == [True]


def test_incomplete_and_overwritten_histograms_are_left_out():
    found = read_histograms(
        columns(
            [
                (5, "priority", 1.0, 0.5, 0.5),  # The other half is missing.
                (7, "priority", 1.0, 1.0, 1.0),
                (8, "priority", 1.0, 1.0, 1.0),
                (6, "priority", 1.0, 1.0, 1.0),  # The learner was resumed from a checkpoint.
                (9, "priority", 1.0, 0.4, 0.4),
                (9, "priority", 10.0, 0.6, 0.6),
                (10, "priority", 1.0, 0.5, 0.5),
            ]
        ),
        "priority",
    )
    assert found.learner_steps.tolist() == [6, 9, 9]


def test_very_many_histograms_are_thinned_and_the_newest_stays():
    steps = range(1, 1002)
    found = read_histograms(columns([(s, "priority", 1.0, 1.0, 1.0) for s in steps]), "priority")
    assert len(found.learner_steps) == 300
    assert (found.learner_steps[0], found.learner_steps[-1]) == (1, 1001)


def test_nothing_to_read():
    assert read_histograms({}, "priority") is None
    assert read_histograms(columns([(1, "age_steps", 1.0, 1.0, 1.0)]), "priority") is None
    assert read_histograms(columns([(1, "priority", 1.0, 0.5, 0.5)]), "priority") is None
