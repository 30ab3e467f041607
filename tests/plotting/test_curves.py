"""Tests of curves: rows left out, thinning, and statistics over seeds."""

import numpy as np
import pytest

from apex_agents.plotting.curves import (
    Curve,
    aggregate,
    bootstrap_interval,
    describe_mean,
    has_numbers,
    interquartile_mean,
    make_curve,
    thin,
)

NAN, INF = np.nan, np.inf


def curve(x, y) -> Curve:
    return make_curve(np.array(x, float), np.array(y, float))


@pytest.mark.parametrize(
    ("x", "kept"),
    [
        ([], []),
        ([3], [3]),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 2, 3, 4, 2.5, 5], [1, 2, 2.5, 5]),  # The learner was resumed from 2.
        ([1, 2, 3, 3, 4], [1, 2, 3, 4]),
        ([5, 6, 1], [1]),
        ([1, NAN, 3, INF, 4], [1, 3, 4]),
    ],
)
def test_rows_that_a_resumed_run_overwrote_are_left_out(x, kept):
    assert curve(x, range(len(x))).x.tolist() == kept


def test_the_later_one_of_two_rows_of_a_step_counts():
    assert curve([1, 2, 2, 3], [10, 20, 21, 30]).y.tolist() == [10, 21, 30]


def test_values_that_are_not_finite_are_left_out():
    found = curve([1, 2, 3, 4], [NAN, 5, -INF, 6])
    assert found.x.tolist() == [2, 4]
    assert found.y.tolist() == found.lower.tolist() == found.upper.tolist() == [5, 6]


def test_the_band_of_a_run_is_its_error():
    y, error = np.array([10.0, 20.0, 30.0]), np.array([1.0, NAN, 2.0])
    found = make_curve(np.arange(3.0), y, error)
    assert found.lower.tolist() == [9, 20, 28]
    assert found.upper.tolist() == [11, 20, 32]


def test_thinning_averages_neighbours_and_keeps_their_extremes():
    found = thin(curve(range(6), [0, 2, 10, 30, -4, 4]), max_points=3)
    assert found.x.tolist() == [0.5, 2.5, 4.5]
    assert found.y.tolist() == [1, 20, 0]
    assert found.lower.tolist() == [0, 10, -4]
    assert found.upper.tolist() == [2, 30, 4]


def test_thinning_takes_every_point():
    found = thin(curve(range(7), [1, 2, 3, 4, 5, 6, 7]), max_points=3)
    # Begins at 0, 7/3 and 14/3, rounded down: points 1, 2 | 3, 4 | 5, 6, 7.
    assert found.y.tolist() == [1.5, 3.5, 6]
    few = curve([1, 2], [3, 4])
    assert thin(few, max_points=2) is few


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7], 7),
        ([1, 5], 3),
        ([0, 0, 9], 3),  # No quarter of 3 is a whole number: the mean.
        ([0, 1, 3, 100], 2),  # (1 + 3) / 2
        ([-100, 1, 2, 6, 100], 3),  # (1 + 2 + 6) / 3
        ([1, 2, 3, 4, 5, 6, 7, 99], 4.5),  # (3 + 4 + 5 + 6) / 4
    ],
)
def test_interquartile_mean(values, expected):
    assert interquartile_mean(np.array(values, float)) == expected
    two_points = np.array([values, values[::-1]], float).T
    assert interquartile_mean(two_points).tolist() == [expected, expected]


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([4], 4, 4),
        # Two draws: both are 0, or both are 10, with probability 1/4 each.
        ([0, 10], 0, 10),
        # The mean of the middle two is 8 if 3 or 4 of the 4 drawn are 8: 4 * 3/256 + 1/256 = 5 %.
        ([0, 0, 0, 8], 0, 8),
        # The mean of the middle three. 4 or 5 of the 5 drawn are 3 in (5 * 4 + 1) / 5^5 = 0.7 %, 3
        # or more in 0.7 % + 10 * 16 / 5^5 = 5.8 % of the cases: then it is (0 + 3 + 3) / 3.
        ([0, 0, 0, 0, 3], 0, 2),
    ],
)
def test_confidence_interval_where_it_can_be_counted(values, lower, upper):
    low, high = bootstrap_interval(np.array(values, float))
    assert (low, high) == pytest.approx((lower, upper))
    # All points of a curve are drawn together: the second is the first, mirrored.
    mirrored = np.array([values, [-value for value in values]], float).T
    low, high = bootstrap_interval(mirrored)
    assert low.tolist() == pytest.approx([lower, -upper])
    assert high.tolist() == pytest.approx([upper, -lower])


def test_the_confidence_interval_is_the_same_every_time():
    values = np.random.default_rng(0).normal(size=(7, 20))
    np.testing.assert_array_equal(bootstrap_interval(values), bootstrap_interval(values))


def test_seeds_are_aggregated_on_the_range_that_all_cover():
    # The first rises by 1 per step, the second by 3: their mean by 2.
    first, second = curve([0, 10], [0, 10]), curve([4, 8, 20], [12, 24, 60])
    found = aggregate([first, second])
    assert (found.x[0], found.x[-1]) == (4, 10)
    np.testing.assert_allclose(found.y, 2 * found.x)
    np.testing.assert_allclose(found.lower, found.x)
    np.testing.assert_allclose(found.upper, 3 * found.x)


def test_seeds_without_a_point_do_not_count():
    only = make_curve(np.arange(3.0), np.arange(3.0), np.ones(3))
    assert aggregate([curve([], []), only, curve([1], [NAN])]) is only
    assert len(aggregate([curve([], [])]).x) == len(aggregate([]).x) == 0


def test_seeds_that_share_no_range_give_no_curve():
    assert len(aggregate([curve([0, 1], [0, 1]), curve([2, 3], [0, 1])]).x) == 0
    touching = aggregate([curve([0, 2], [0, 1]), curve([2, 3], [3, 4])])
    assert [values.tolist() for values in touching] == [[2], [2], [1], [3]]


def test_the_statistic_is_named_by_the_number_of_seeds():
    assert describe_mean(3) == "mean of 3 seeds"
    assert describe_mean(4) == "interquartile mean of 4 seeds"


def test_columns_have_to_hold_numbers():
    columns = {"a": np.ones(2), "b": np.array(["1", "x"])}
    assert has_numbers(columns, "a")
    assert not has_numbers(columns, "a", "b")
    assert not has_numbers(columns, "missing")
