"""The rows of a run's CSV files as TensorBoard and Weights & Biases get them.

One process exports the whole run: the nodes write CSV files and nothing else.
"""

import collections
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from apex_agents.metrics import columns
from apex_agents.metrics.histograms import BINS_PER_DECADE
from apex_agents.metrics.run_state import RunState, number
from apex_agents.runs.csv_file import Row

# Of hundreds of actors or environments these many are exported; the CSV files have all.
_MAX_ACTORS = 8
_MAX_ENVS = 16


class Scalars(NamedTuple):
    """Numbers of one row."""

    step: int
    step_name: str  # `learner_steps` for rows of the learner and the evaluator, or `actor_steps`.
    values: Mapping[str, float]  # By `<node>/<column>`.


class Histogram(NamedTuple):
    """A distribution over N bins that are equally wide on a logarithmic axis."""

    step: int  # Learner steps.
    name: str  # `learner/log10_<quantity>`.
    edges: np.ndarray  # Bounds of the bins, as logarithms, `[N + 1]`.
    shares: np.ndarray  # Part of the samples in each bin, `[N]`.


class Export(Protocol):
    """A destination of a run's metrics."""

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        """Export new items; log a warning if that fails."""

    def close(self) -> None:
        """Export what waits and finish."""


def read_items(rows: Sequence[tuple[str, Row]], state: RunState) -> Iterator[Scalars | Histogram]:
    """Turn new rows, each with the name of its file, into what is exported of a run."""
    actor_steps = _to_int(number(state.replay, columns.ACTOR_STEPS))
    bins = collections.defaultdict(list)
    for name, row in rows:
        learner_steps = _to_int(number(row, columns.LEARNER_STEPS))
        if name == columns.LEARNER_HISTOGRAMS:
            bins[learner_steps, row.get(columns.QUANTITY)].append(row)
        elif name in (columns.LEARNER, columns.EVALUATOR):
            yield Scalars(learner_steps, columns.LEARNER_STEPS, _name_values(name, row))
        elif (node := _name_node(name, row, state)) is not None:
            yield Scalars(actor_steps, columns.ACTOR_STEPS, _name_values(node, row))
    for (step, quantity), rows_of_bins in bins.items():
        yield Histogram(step, f"learner/log10_{quantity}", *_join_bins(rows_of_bins))


def _name_node(name: str, row: Row, state: RunState) -> str | None:
    """Return the name under which a row is exported, or None if it is not."""
    if name == columns.REPLAY:
        return name
    if columns.ENV_INDEX in row:
        index = _to_int(number(row, columns.ENV_INDEX))
        return f"env_{index}" if index in _spread(state.num_envs(), _MAX_ENVS) else None
    actor = columns.parse_actor_file(name)
    return name if actor in _spread(state.num_actors(), _MAX_ACTORS) else None


def _spread(total: int, most: int) -> set[int]:
    """Choose at most `most` indices below `total`, evenly spread, with the first and the last."""
    return set(np.linspace(0, max(total - 1, 0), min(total, most)).round().astype(int).tolist())


def _name_values(node: str, row: Row) -> dict[str, float]:
    """Return the finite numbers of a row by their full names."""
    names = row.keys() - {columns.WALL_TIME_SECONDS, columns.ENV_INDEX}
    values = {f"{node}/{name}": number(row, name) for name in sorted(names)}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _join_bins(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges and shares of adjacent bins, including empty ones, which have no row.

    The first of all bins starts at 0: here it is as wide as the others.
    """
    width = 1 / BINS_PER_DECADE
    with np.errstate(divide="ignore"):
        lower = np.log10([number(row, columns.LOWER) for row in rows])
        upper = np.log10([number(row, columns.UPPER) for row in rows])
    start = np.where(np.isfinite(lower), lower, upper - width)
    index = np.round((start - start.min()) / width).astype(int)
    shares = np.bincount(index, [number(row, columns.SAMPLED_SHARE) for row in rows])
    return start.min() + width * np.arange(len(shares) + 1), shares


def _to_int(value: float) -> int:
    return int(value) if math.isfinite(value) else 0
