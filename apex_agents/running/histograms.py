"""Distributions of what the learner samples, as rows of a CSV file.

Bins are the same in all runs, 4 per factor of 10: rows of different times and runs can be compared
and added up.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from apex_agents.experiment import Experiment
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.samples import SampledTransitions
from apex_agents.running.loggers import make_csv_logger

_PERIOD_SECONDS = 30.0

# From the smallest priority to more learner steps than anybody does; 0 has a bin of its own.
_BIN_EDGES = np.concatenate([[0.0], 10.0 ** (np.arange(-24, 40) / 4), [np.inf]])


class Bin(NamedTuple):
    """One bar of a histogram: values from `lower` on and below `upper`.

    Attributes:
      lower: bound of the values.
      upper: bound of the values.
      sampled_share: part of the sampled transitions that is here, in [0, 1].
      replay_share: part of the replay's transitions that is here, estimated from the sample.
    """

    lower: float
    upper: float
    sampled_share: float
    replay_share: float


def make_histogram(values: np.ndarray, weights: np.ndarray) -> Iterator[Bin]:
    """Yield the bins that are not empty.

    Args:
      values: `[N]`, of sampled transitions, at least 0; others are left out.
      weights: `[N]`, how many transitions of the replay each of them stands for.
    """
    index = np.digitize(values, _BIN_EDGES)
    num_bins = len(_BIN_EDGES) + 1
    sampled = np.bincount(index, minlength=num_bins) / len(values)
    replay = np.bincount(index, weights, minlength=num_bins) / weights.sum()
    for i in np.flatnonzero(sampled[1:-1]) + 1:
        yield Bin(_BIN_EDGES[i - 1], _BIN_EDGES[i], sampled[i], replay[i])


class HistogramLogger:
    """Writes the distributions of the learner's newest batches to a CSV file."""

    def __init__(self, experiment: Experiment):
        """Open the file."""
        self._logger = make_csv_logger(experiment, "learner_histograms", flush_every=1000)
        self._last = -np.inf

    def write_if_due(self, learner: ApexLearner) -> None:
        """Write the bins of all quantities, if the last time is long enough ago."""
        if time.monotonic() < self._last + _PERIOD_SECONDS:
            return
        self._last = time.monotonic()
        samples = learner.recent_samples.collect()
        for quantity in SampledTransitions._fields[:-1]:
            for bar in make_histogram(getattr(samples, quantity), samples.weight):
                identity = {"learner_steps": learner.num_steps, "quantity": quantity}
                self._logger.write({**identity, **bar._asdict()})
        self._logger.flush()

    def close(self) -> None:
        """Close the file."""
        self._logger.close()
