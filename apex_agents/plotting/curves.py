"""Curves from the rows of runs: seeds brought together, each number with how sure it is.

The statistics are those of Agarwal et al. 2021 ("Deep Reinforcement Learning at the Edge of the
Statistical Precipice"): interquartile means with percentile bootstrap confidence intervals.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE_LEVEL = 0.95

_NUM_RESAMPLES = 2000
# Of one run: as many as a panel of a figure can show.
MAX_POINTS = 120
_NUM_GRID_POINTS = 200
_TOO_LARGE = 1e30


class Curve(NamedTuple):
    """A line and the band around it, `[N]` each.

    Attributes:
      x: positions, rising.
      y: values of the line.
      lower: lower end of the band; equal to `y` where there is none.
      upper: upper end of the band.
    """

    x: np.ndarray
    y: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


NOTHING = Curve(*np.empty([4, 0]))


def make_curve(x: np.ndarray, y: np.ndarray, error: np.ndarray | None = None) -> Curve:
    """Make the curve of one run from its rows.

    Rows without numbers in `x` and `y` that can be drawn (see `is_drawable`) are left out, and so
    are those that a later row takes back: a run that goes on from a checkpoint does some steps a
    second time.

    Args:
      x: `[R]`, in the order in which the rows were written.
      y: `[R]`.
      error: `[R]`, half the height of the band; None for no band.

    Returns:
      The curve of the other rows, possibly of none.
    """
    error = np.zeros(len(y)) if error is None else np.where(is_drawable(error), error, 0.0)
    shown = is_drawable(x) & is_drawable(y)
    x, y, error = x[shown], y[shown], error[shown]
    stays = is_kept(x)
    x, y, error = x[stays], y[stays], error[stays]
    return Curve(x, y, y - error, y + error)


def is_drawable(values: np.ndarray) -> np.ndarray:
    """Return which values are neither NaN nor so large that an axis could overflow."""
    return np.abs(values) < _TOO_LARGE


def is_kept(x: np.ndarray) -> np.ndarray:
    """Return which of `x`, `[R]`, no later one takes back: those below all that follow, `[R]`."""
    lowest_from_here = np.minimum.accumulate(x[::-1])[::-1]
    return x < np.append(lowest_from_here[1:], np.inf)


def has_numbers(columns: Mapping[str, np.ndarray], *names: str) -> bool:
    """Return whether a file that was read has columns of these names, with nothing but numbers."""
    return all(name in columns and columns[name].dtype.kind == "f" for name in names)


def thin(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Replace neighbouring points by their mean until there are at most `max_points`.

    The band then reaches from the lowest to the highest end of those that it replaces: a single
    peak of the loss stays visible.
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
    """Bring the curves of several seeds together: interquartile mean and confidence interval.

    Each curve is interpolated on a grid over the range that all of them cover. Nothing is
    extrapolated: what lies before the last one begins or after the first one ends is left out, as a
    mean over those that happen to be there would jump where one of them ends.

    Args:
      curves: of one seed each; those without a point are left out.

    Returns:
      The curve; the only one as it is; no point if there is no range that all cover.
    """
    curves = [curve for curve in curves if len(curve.x)]
    if len(curves) == 1:
        return curves[0]
    start = max((curve.x[0] for curve in curves), default=np.inf)
    end = min((curve.x[-1] for curve in curves), default=-np.inf)
    if start > end:
        return NOTHING
    grid = np.linspace(start, end, _NUM_GRID_POINTS if end > start else 1)
    values = np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])
    return Curve(grid, interquartile_mean(values), *bootstrap_interval(values))


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over seeds without the lowest and the highest quarter.

    A quarter that is no whole number is rounded down, so that nothing is left out of fewer than
    four values: it is their mean.

    Args:
      values: `[S, ...]`, S seeds.

    Returns:
      `[...]`.
    """
    return _trim_mean(values, axis=0) if len(values) > 1 else values[0]


def _trim_mean(values: np.ndarray, axis: int) -> np.ndarray:
    # Takes a second, which a single run does not need.
    from scipy import stats  # type: ignore[import-untyped]

    return stats.trim_mean(values, 0.25, axis=axis)


def describe_mean(num_seeds: int) -> str:
    """Say what `interquartile_mean` gives of so many seeds."""
    return f"{'mean' if num_seeds < 4 else 'interquartile mean'} of {num_seeds} seeds"


def bootstrap_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % confidence interval of the interquartile mean over seeds.

    Seeds are drawn again with replacement; the interval is that of the percentiles. Of two or three
    seeds it reaches from the lowest to the highest; of one it is that value.

    Args:
      values: `[S, ...]`, S seeds.

    Returns:
      `[...]`, the lower and the upper end.
    """
    if len(values) == 1:
        return values[0], values[0]
    from scipy import stats

    result = stats.bootstrap(
        (values,),
        _trim_mean,
        n_resamples=_NUM_RESAMPLES,
        batch=100,  # Less memory.
        vectorized=True,
        axis=0,
        confidence_level=CONFIDENCE_LEVEL,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    return result.confidence_interval.low, result.confidence_interval.high
