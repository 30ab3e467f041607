"""What of a run's CSV files is passed on to TensorBoard and to Weights & Biases.

One process does that for the whole run: the nodes write CSV files and nothing else.
"""

import collections
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from apex_agents.metrics.histograms import BINS_PER_DECADE
from apex_agents.metrics.run_state import RunState, number
from apex_agents.runs.folder import Row

# Of hundreds of actors or environments these many are passed on; the CSV files have all.
_MAX_ACTORS = 8
_MAX_ENVS = 16


class Scalars(NamedTuple):
    """Numbers of one moment.

    Attributes:
      step: how far the run was.
      step_name: learner steps, for what the learner and the evaluator tell, else actor steps.
      values: by name, `<node>/<column>`.
    """

    step: int
    step_name: str
    values: Mapping[str, float]


class Histogram(NamedTuple):
    """A distribution of one moment, over bins that are equally wide on a logarithmic axis.

    Attributes:
      step: learner steps.
      name: `learner/log10_<quantity>`.
      edges: `[N + 1]`, bounds of N bins, as logarithms.
      shares: `[N]`, part of the samples in each bin.
    """

    step: int
    name: str
    edges: np.ndarray
    shares: np.ndarray


class Export(Protocol):
    """Where it is passed on to."""

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        """Pass on what is new; what cannot be is left out, with a warning."""

    def close(self) -> None:
        """Finish."""


def read_items(rows: Sequence[tuple[str, Row]], state: RunState) -> Iterator[Scalars | Histogram]:
    """Turn rows into what is passed on.

    Args:
      rows: new ones, each with the name of its file.
      state: of the run, these rows included.
    """
    actor_steps = _whole(number(state.replay, "actor_steps"))
    bins = collections.defaultdict(list)
    for name, row in rows:
        learner_steps = _whole(number(row, "learner_steps"))
        if name == "learner_histograms":
            bins[learner_steps, row.get("quantity")].append(row)
        elif name in ("learner", "evaluator"):
            yield Scalars(learner_steps, "learner_steps", _name_values(name, row))
        elif (node := _name_node(name, row, state)) is not None:
            yield Scalars(actor_steps, "actor_steps", _name_values(node, row))
    for (step, quantity), rows_of_bins in bins.items():
        yield Histogram(step, f"learner/log10_{quantity}", *_join_bins(rows_of_bins))


def _name_node(name: str, row: Row, state: RunState) -> str | None:
    """Return whose metrics a row has, or None if it is not passed on."""
    if name == "replay":
        return name
    match = re.fullmatch(r"actor_(\d+)(_envs)?", name)
    if match is None:
        return None
    if match[2]:
        env_index = _whole(number(row, "env_index"))
        return f"env_{env_index}" if env_index in _spread(state.num_envs(), _MAX_ENVS) else None
    return name if int(match[1]) in _spread(state.num_actors(), _MAX_ACTORS) else None


def _spread(total: int, most: int) -> set[int]:
    """Choose indices below `total`, the first and the last among them."""
    return set(np.linspace(0, max(total - 1, 0), min(total, most)).round().astype(int).tolist())


def _name_values(node: str, row: Row) -> dict[str, float]:
    """Return the numbers of a row that are finite, by their full names."""
    values = {
        name: number(row, name) for name in row if name not in ("wall_time_seconds", "env_index")
    }
    return {f"{node}/{name}": value for name, value in values.items() if math.isfinite(value)}


def _join_bins(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Put the bins of a histogram side by side; empty ones between them have no row.

    The first of all bins begins at 0: here it is as wide as the others.
    """
    width = 1 / BINS_PER_DECADE
    with np.errstate(divide="ignore"):
        lower = np.log10([number(row, "lower") for row in rows])
        upper = np.log10([number(row, "upper") for row in rows])
    start = np.where(np.isfinite(lower), lower, upper - width)
    index = np.round((start - start.min()) / width).astype(int)
    shares = np.bincount(index, [number(row, "sampled_share") for row in rows])
    return start.min() + width * np.arange(len(shares) + 1), shares


def _whole(value: float) -> int:
    return int(value) if math.isfinite(value) else 0
