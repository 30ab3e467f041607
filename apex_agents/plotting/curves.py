"""Aggregates the rows of runs into curves with confidence intervals.

The statistics are those of Agarwal et al. 2021 ("Deep Reinforcement Learning at the Edge of the
Statistical Precipice"): interquartile means with percentile bootstrap confidence intervals,
stratified by task.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

MAX_POINTS = 120  # A panel of a figure shows no more.
INTERVAL = "95 % bootstrap confidence interval"  # For the mean that `estimate` returns.
MIN_SEEDS_OF_INTERVAL = 5

_MIN_SEEDS_PER_TASK = 3  # Resampling two would draw the two themselves as an interval.
_NUM_RESAMPLES = 2000
_NUM_GRID_POINTS = 200
_TOO_LARGE = 1e30


class Curve(NamedTuple):
    """A line with a band around it, `[N]` each; a point of NaN between two others breaks it."""

    x: np.ndarray  # Never decreasing.
    y: np.ndarray
    lower: np.ndarray  # Equal to `y`, or NaN, where there is no band.
    upper: np.ndarray


def make_curve(x: np.ndarray, y: np.ndarray, error: np.ndarray | None = None) -> Curve:
    """Make the curve of one run.

    Rows whose `x` or `y` cannot be drawn are left out, and so are rows that a resumed run
    overwrote: it repeats the steps after its checkpoint. The line breaks where a run was stopped:
    at overwritten rows, and where `x` is NaN.

    Args:
      x: `[R]`, in the order in which the rows were written.
      y: `[R]`.
      error: `[R]`, half the height of the band; None for no band.
    """
    error = np.zeros(len(y)) if error is None else np.where(is_drawable(error), error, 0.0)
    shown = np.flatnonzero(is_drawable(x) & is_drawable(y))
    overwritten = shown[~is_kept(x[shown])]
    shown = np.setdiff1d(shown, overwritten)
    num_stops = np.cumsum(np.isnan(x) | np.isin(np.arange(len(x)), overwritten))[shown]
    points = np.stack([x, y, y - error, y + error])[:, shown]
    return Curve(*np.insert(points, np.flatnonzero(np.diff(num_stops)) + 1, np.nan, axis=1))


def is_drawable(values: np.ndarray) -> np.ndarray:
    """Return which values are neither NaN nor so large that an axis could overflow."""
    return np.abs(values) < _TOO_LARGE


def is_kept(x: np.ndarray) -> np.ndarray:
    """Return a mask, `[R]`, of the values of `x`, `[R]`, that no later value is below."""
    return x <= np.minimum.accumulate(x[::-1])[::-1]


def has_numbers(columns: Mapping[str, np.ndarray], *names: str) -> bool:
    """Return whether a file has columns of these names that hold only numbers."""
    return all(name in columns and columns[name].dtype.kind == "f" for name in names)


def thin(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Average neighbouring points until there are at most `max_points`.

    The new band reaches from the lowest to the highest edge of the old one, so that a single peak
    of the loss stays visible.
    """
    if len(curve.x) <= max_points:
        return curve
    stops = np.flatnonzero(np.isnan(curve.x))
    starts = np.linspace(0, len(curve.x), max_points, endpoint=False).astype(int)
    starts = np.union1d(starts, [stops, stops + 1])
    starts = starts[starts < len(curve.x)]
    counts = np.diff(np.append(starts, len(curve.x)))
    return Curve(
        np.add.reduceat(curve.x, starts) / counts,
        np.add.reduceat(curve.y, starts) / counts,
        np.minimum.reduceat(curve.lower, starts),
        np.maximum.reduceat(curve.upper, starts),
    )


def thin_to_last(curve: Curve) -> Curve:
    """Average neighbouring points as `thin` does, but for the last one, which stays as it is."""
    thinned = thin(Curve(*(values[:-1] for values in curve)), MAX_POINTS - 1)
    return Curve(*(np.append(some, all_[-1]) for some, all_ in zip(thinned, curve, strict=True)))


def carry_forward(curve: Curve, end: float) -> Curve:
    """Return a curve that stays at its last value until `end`."""
    return Curve(np.append(curve.x, end), *(np.append(v, v[-1]) for v in curve[1:]))


def aggregate(curves: Sequence[Curve]) -> Curve:
    """Aggregate several seeds as `estimate` does; a single curve is returned as it is.

    The curves, at least one point each, are interpolated on a grid over the range that all of them
    cover. Outside of it, the mean would jump wherever a curve begins or ends.

    Returns:
      The aggregated curve, without a point if the curves share no range.
    """
    if len(curves) == 1:
        return curves[0]
    start = max((curve.x[0] for curve in curves), default=np.inf)
    end = min((curve.x[-1] for curve in curves), default=-np.inf)
    if start > end:
        return Curve(*np.empty([4, 0]))
    grid = np.linspace(start, end, _NUM_GRID_POINTS if end > start else 1)
    points = [np.array(curve)[:2, ~np.isnan(curve.x)] for curve in curves]
    return Curve(grid, *estimate(np.stack([np.interp(grid, x, y) for x, y in points])))


def estimate(*values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimate the result of a setting from the results of its runs.

    Args:
      values: `[S, ...]`, S seeds; on several tasks an array for each of them, whose runs are
        resampled separately.

    Returns:
      From five runs on, the interquartile mean (without the lowest and the highest quarter, whose
      size is rounded down) and the ends of its 95 % percentile bootstrap interval, `[...]` each.
      For fewer, of which an interval would say little, the mean, and NaN for the ends, which are
      NaN as well with fewer than three seeds on one of several tasks.
    """
    together = np.concatenate(values)
    if len(together) < MIN_SEEDS_OF_INTERVAL:
        mean = together.mean(axis=0)
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    # This import takes a second, and a single run does not need it.
    from scipy import stats  # type: ignore[import-untyped]

    def interquartile_mean(*samples: np.ndarray, axis: int) -> np.ndarray:
        return stats.trim_mean(np.concatenate(samples, axis), proportiontocut=0.25, axis=axis)

    mean = interquartile_mean(together, axis=0)
    if min(map(len, values)) < _MIN_SEEDS_PER_TASK:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    result = stats.bootstrap(
        values,
        interquartile_mean,
        n_resamples=_NUM_RESAMPLES,
        batch=100,  # All at once would take much memory.
        vectorized=True,
        axis=0,
        confidence_level=0.95,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    return mean, result.confidence_interval.low, result.confidence_interval.high


def describe_mean(num_seeds: int) -> str:
    """Name the mean that `estimate` returns for this number of seeds."""
    is_mean = num_seeds < MIN_SEEDS_OF_INTERVAL
    return f"{'mean' if is_mean else 'interquartile mean'} of {num_seeds} seeds"
