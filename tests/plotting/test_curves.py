"""Tests of curves: rows left out, thinning, and statistics over seeds."""

import numpy as np
import pytest

from apex_agents.plotting.curves import (
    MAX_POINTS,
    Curve,
    aggregate,
    carry_forward,
    describe_mean,
    estimate,
    has_numbers,
    make_curve,
    thin,
    thin_to_last,
)

NAN, INF = np.nan, np.inf


def curve(x, y) -> Curve:
    return make_curve(np.array(x, float), np.array(y, float))


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        ([], []),
        ([3], [3]),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 2, 2, 3], [1, 2, 2, 3]),  # Two evaluations with the same actor steps.
        ([1, 2, 3, 4, 2.5, 5], [1, 2, NAN, 2.5, 5]),  # The learner was resumed from 2.
        ([1, 2, 3, NAN, 2, 3], [1, 2, NAN, 2, 3]),
        ([1, 2, NAN, 3], [1, 2, NAN, 3]),  # The run was stopped at 2.
        ([5, 6, NAN, 1], [1]),
        ([1, 2, INF, 3], [1, 2, 3]),
    ],
)
def test_a_line_breaks_where_a_run_was_stopped_and_overwritten_rows_are_left_out(x, shown):
    found = curve(x, range(len(x)))
    np.testing.assert_array_equal(found.x, shown)
    assert np.isnan(found.y).tolist() == np.isnan(found.x).tolist()


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


def test_thinning_up_to_a_last_point_that_stays():
    x = np.arange(200.0)
    curve = make_curve(x, np.where(x < 199, 0.0, 7.0))
    thinned = thin_to_last(curve)
    assert len(thinned.x) == MAX_POINTS
    assert (thinned.x[-1], thinned.y[-1]) == (199.0, 7.0)
    # The run was stopped, and resumed just before its last point.
    x[-1] = 150.0
    stopped = thin_to_last(make_curve(x, np.where(np.arange(200) < 199, 0.0, 7.0)))
    assert (stopped.x[-1], stopped.y[-1]) == (150.0, 7.0)
    assert np.isnan(stopped.x[:-1]).any()


def test_thinning_takes_every_point():
    found = thin(curve(range(7), [1, 2, 3, 4, 5, 6, 7]), max_points=3)
    # Begins at 0, 7/3 and 14/3, rounded down: points 1, 2 | 3, 4 | 5, 6, 7.
    assert found.y.tolist() == [1.5, 3.5, 6]
    found = thin(curve([0, 1, 2, NAN, 3, 4, 5], range(7)), max_points=2)
    np.testing.assert_array_equal(found.y, [1, NAN, 5])  # (0 + 1 + 2) / 3, (4 + 5 + 6) / 3
    few = curve([1, 2], [3, 4])
    assert thin(few, max_points=2) is few


@pytest.mark.parametrize(
    ("values", "mean"),
    [([7], 7), ([1, 5], 3), ([0, 0, 9], 3), ([0, 1, 3, 100], 26)],
)
def test_fewer_than_five_seeds_have_a_mean_without_an_interval(values, mean):
    mirrored = np.array([values, [-value for value in values]], float).T
    found, lower, upper = estimate(mirrored)
    assert found.tolist() == [mean, -mean]
    assert np.isnan([lower, upper]).all()


@pytest.mark.parametrize(
    ("values", "middle", "lower", "upper"),
    [
        # The mean of the middle three. 4 or 5 of the 5 drawn are 3 in (5 * 4 + 1) / 5^5 = 0.7 %, 3
        # or more in 0.7 % + 10 * 16 / 5^5 = 5.8 % of the cases: then it is (0 + 3 + 3) / 3.
        ([0, 0, 0, 0, 3], 0, 0, 2),
        # The mean of the middle four. 4 or more of the 8 drawn are 8 in 1.1 %, 3 or more in 6.7 %
        # of the cases: then it is (0 + 0 + 0 + 8) / 4.
        ([0, 0, 0, 0, 0, 0, 0, 8], 0, 0, 2),
    ],
)
def test_five_seeds_have_an_interquartile_mean_with_an_interval(values, middle, lower, upper):
    assert estimate(np.array(values, float)) == pytest.approx((middle, lower, upper))
    # All points of a curve are drawn together: the second is the first, mirrored.
    mirrored = np.array([values, [-value for value in values]], float).T
    found, low, high = estimate(mirrored)
    assert found.tolist() == [middle, -middle]
    assert low.tolist() == pytest.approx([lower, -upper])
    assert high.tolist() == pytest.approx([upper, -lower])


def test_the_runs_of_each_task_are_resampled_apart():
    first, second = np.array([1.0, 1.0, 1.0]), np.array([3.0, 3.0, 3.0])
    # One of each end of 1, 1, 1, 3, 3, 3 is left out, whatever is drawn.
    assert estimate(first, second) == (2.0, 2.0, 2.0)
    together = estimate(np.concatenate([first, second]))
    assert together[1] < 1.5 < 2.5 < together[2]


@pytest.mark.parametrize(
    "tasks",
    [
        [[0.0], [1.0], [2.0], [3.0], [9.0]],
        [[0.0, 1.0], [3.0, 9.0, 2.0]],
        [[0.0, 9.0], [2.0, 2.0], [1.0, 3.0]],
    ],
)
def test_fewer_than_three_seeds_on_one_of_several_tasks_have_no_interval(tasks):
    middle, lower, upper = estimate(*map(np.array, tasks))
    assert middle == 2.0  # (1 + 2 + 3) / 3, or of six seeds (1 + 2 + 2 + 3) / 4
    assert np.isnan([lower, upper]).all()


def test_the_estimate_is_the_same_every_time():
    values = np.random.default_rng(0).normal(size=(7, 20))
    np.testing.assert_array_equal(estimate(values), estimate(values))


def test_a_curve_that_is_carried_forward_stays_at_its_last_value():
    found = carry_forward(make_curve(np.arange(2.0), np.array([3.0, 5.0]), np.ones(2)), end=9.0)
    assert [values.tolist() for values in found] == [[0, 1, 9], [3, 5, 5], [2, 4, 4], [4, 6, 6]]


def test_seeds_are_aggregated_on_the_range_that_all_cover():
    # The first rises by 1 per step, the second by 3: their mean by 2.
    first, second = curve([0, 10], [0, 10]), curve([4, 8, 20], [12, 24, 60])
    found = aggregate([first, second])
    assert (found.x[0], found.x[-1]) == (4, 10)
    np.testing.assert_allclose(found.y, 2 * found.x)
    assert np.isnan([found.lower, found.upper]).all()


def test_seeds_are_interpolated_where_their_lines_break():
    broken, other = curve([0, 1, NAN, 3, 4], [0, 1, NAN, 3, 4]), curve([0, 4], [0, 4])
    found = aggregate([broken, other])
    np.testing.assert_allclose(found.y, found.x)


def test_a_single_seed_is_itself():
    only = make_curve(np.arange(3.0), np.arange(3.0), np.ones(3))
    assert aggregate([only]) is only
    assert len(aggregate([]).x) == 0


def test_seeds_that_share_no_range_give_no_curve():
    assert len(aggregate([curve([0, 1], [0, 1]), curve([2, 3], [0, 1])]).x) == 0
    touching = aggregate([curve([0, 2], [0, 1]), curve([2, 3], [3, 4])])
    assert [values.tolist() for values in touching[:2]] == [[2], [2]]


def test_the_statistic_is_named_by_the_number_of_seeds():
    assert describe_mean(4) == "mean of 4 seeds"
    assert describe_mean(5) == "interquartile mean of 5 seeds"


def test_columns_have_to_hold_numbers():
    columns = {"a": np.ones(2), "b": np.array(["1", "x"])}
    assert has_numbers(columns, "a")
    assert not has_numbers(columns, "a", "b")
    assert not has_numbers(columns, "missing")
