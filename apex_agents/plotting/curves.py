"""Aggregates the rows of runs into curves with confidence intervals.

The statistics are those of Agarwal et al. 2021 ("Deep Reinforcement Learning at the Edge of the
Statistical Precipice"): interquartile means with percentile bootstrap confidence intervals.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

MAX_POINTS = 120  # A panel of a figure shows no more.

_NUM_RESAMPLES = 2000
_NUM_GRID_POINTS = 200
_TOO_LARGE = 1e30


class Curve(NamedTuple):
    """A line with a band around it, `[N]` each."""

    x: np.ndarray  # Increasing.
    y: np.ndarray
    lower: np.ndarray  # Equal to `y` where there is no band.
    upper: np.ndarray


def make_curve(x: np.ndarray, y: np.ndarray, error: np.ndarray | None = None) -> Curve:
    """Make the curve of one run.

    Rows whose `x` or `y` cannot be drawn are left out, and so are rows that a resumed run
    overwrote: it repeats the steps after its checkpoint.

    Args:
      x: `[R]`, in the order in which the rows were written.
      y: `[R]`.
      error: `[R]`, half the height of the band; None for no band.
    """
    error = np.zeros(len(y)) if error is None else np.where(is_drawable(error), error, 0.0)
    shown = np.flatnonzero(is_drawable(x) & is_drawable(y))
    shown = shown[is_kept(x[shown])]
    x, y, error = x[shown], y[shown], error[shown]
    return Curve(x, y, y - error, y + error)


def is_drawable(values: np.ndarray) -> np.ndarray:
    """Return which values are neither NaN nor so large that an axis could overflow."""
    return np.abs(values) < _TOO_LARGE


def is_kept(x: np.ndarray) -> np.ndarray:
    """Return which of `x`, `[R]`, are below all later ones, `[R]`."""
    lowest_from_here = np.minimum.accumulate(x[::-1])[::-1]
    return x < np.append(lowest_from_here[1:], np.inf)


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
    starts = np.linspace(0, len(curve.x), max_points, endpoint=False).astype(int)
    counts = np.diff(np.append(starts, len(curve.x)))
    return Curve(
        np.add.reduceat(curve.x, starts) / counts,
        np.add.reduceat(curve.y, starts) / counts,
        np.minimum.reduceat(curve.lower, starts),
        np.maximum.reduceat(curve.upper, starts),
    )


def aggregate(curves: Sequence[Curve]) -> Curve:
    """Aggregate several seeds: interquartile mean and confidence interval.

    The curves are interpolated on a grid over the range that all of them cover. Outside of it, the
    mean would jump wherever a curve begins or ends.

    Args:
      curves: one curve per seed; those without a point are left out.

    Returns:
      The aggregated curve; a single curve unchanged; no point if the curves share no range.
    """
    curves = [curve for curve in curves if len(curve.x)]
    if len(curves) == 1:
        return curves[0]
    start = max((curve.x[0] for curve in curves), default=np.inf)
    end = min((curve.x[-1] for curve in curves), default=-np.inf)
    if start > end:
        return Curve(*np.empty([4, 0]))
    grid = np.linspace(start, end, _NUM_GRID_POINTS if end > start else 1)
    values = np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])
    return Curve(grid, interquartile_mean(values), *bootstrap_interval(values))


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean over seeds without the lowest and the highest quarter.

    The size of a quarter is rounded down: below four seeds this is the mean.

    Args:
      values: `[S, ...]`, S seeds, or any shape with the seeds on another axis.
      axis: axis of the seeds, which the mean does not have.
    """
    if values.shape[axis] == 1:
        return values.take(0, axis)
    # This import takes a second, and a single run does not need it.
    from scipy import stats  # type: ignore[import-untyped]

    return stats.trim_mean(values, 0.25, axis=axis)


def describe_mean(num_seeds: int) -> str:
    """Name the statistic that `interquartile_mean` is for this number of seeds."""
    return f"{'mean' if num_seeds < 4 else 'interquartile mean'} of {num_seeds} seeds"


def bootstrap_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % percentile bootstrap interval of the interquartile mean over seeds.

    With two or three seeds it reaches from the lowest to the highest; with one it is that value.

    Args:
      values: `[S, ...]`, S seeds.

    Returns:
      The lower and the upper end, `[...]` each.
    """
    if len(values) == 1:
        return values[0], values[0]
    from scipy import stats

    result = stats.bootstrap(
        (values,),
        interquartile_mean,
        n_resamples=_NUM_RESAMPLES,
        batch=100,  # All at once would take much memory.
        vectorized=True,
        axis=0,
        confidence_level=0.95,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    return result.confidence_interval.low, result.confidence_interval.high
