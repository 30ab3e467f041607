"""The learner's loggers: means over learner steps, distributions of the sampled transitions."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from acme.utils import loggers

from apex_agents.experiment import Experiment
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.samples import SampledTransitions
from apex_agents.metrics import columns
from apex_agents.metrics.histograms import make_histogram
from apex_agents.metrics.loggers import PERIOD_SECONDS, make_logger, name_statistics
from apex_agents.replay.statistics import StatisticsPoller

_SHORTEST_PERIOD_SECONDS = 0.5
_HISTOGRAM_PERIOD_SECONDS = 30.0

# What is written per second, from amounts that a learner logs for each step.
_PER_SECOND = {
    columns.LEARNER_STEPS_PER_SECOND: "num_updates",
    columns.DATA_WAIT_FRACTION: "waiting_seconds",
}


class LearnerLogger(loggers.Logger):
    """Writes means over all learner steps since the row before, with the counts of the replay.

    A row follows every five seconds, or a tenth of the time since the first row if that is less, so
    that the curves of a run of some seconds have points, too.
    """

    def __init__(
        self,
        experiment: Experiment,
        poller: StatisticsPoller,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Open the learner's CSV file; `clock` returns a time in seconds."""
        self._logger = make_logger(
            experiment, columns.LEARNER, lambda: name_statistics(poller.latest)
        )
        self._clock = clock
        self._steps: list[Mapping[str, Any]] = []  # Since the row before.
        self._first: float | None = None
        self._last = clock()

    def write(self, data: Mapping[str, Any]) -> None:
        """Record what a learner's `step` did; write a row if one is due."""
        self._steps.append(data)
        now = self._clock()
        first = now if self._first is None else self._first
        period = max(_SHORTEST_PERIOD_SECONDS, 0.1 * (now - first))
        if self._first is None or now - self._last >= min(period, PERIOD_SECONDS):
            self.write_row()

    def write_row(self) -> None:
        """Write what was recorded since the row before, if anything was."""
        if not self._steps:
            return
        now, steps = self._clock(), self._steps
        names = steps[-1].keys() - _PER_SECOND.values()
        row = {name: _summarise([step[name] for step in steps]) for name in names}
        for name, amount in _PER_SECOND.items():
            row[name] = sum(step[amount] for step in steps) / (now - self._last)
        self._logger.write(row)
        self._steps = []
        self._first = now if self._first is None else self._first
        self._last = now

    def close(self) -> None:
        self.write_row()
        self._logger.close()


class HistogramLogger:
    """Writes the distributions of the newest batches every half a minute, and the last ones."""

    def __init__(
        self,
        experiment: Experiment,
        learner: ApexLearner,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Open the CSV file, for a learner that has its state; `clock` returns seconds."""
        self._logger = make_logger(experiment, columns.LEARNER_HISTOGRAMS)
        self._learner = learner
        self._clock = clock
        self._last = -np.inf
        self._last_steps = learner.num_steps

    def write_if_due(self) -> None:
        """Write if a period has passed since the last time."""
        if self._clock() >= self._last + _HISTOGRAM_PERIOD_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the bins of all quantities, unless there was no learner step since the last time.

        A learner that samples no transitions has none.
        """
        learner = self._learner
        if learner.recent_samples is None or learner.num_steps == self._last_steps:
            return
        self._last, self._last_steps = self._clock(), learner.num_steps
        samples = learner.recent_samples.collect()
        self._logger.write_rows(
            {columns.LEARNER_STEPS: learner.num_steps, columns.QUANTITY: quantity, **bin_._asdict()}
            for quantity in SampledTransitions._fields[:-1]
            for bin_ in make_histogram(getattr(samples, quantity), samples.weight)
        )


def _summarise(values: Sequence[Any]) -> float:
    """Return the newest one of integers, which are counts, and the mean of other numbers."""
    newest = np.asarray(values[-1])
    if np.issubdtype(newest.dtype, np.integer):
        return newest.item()
    return float(np.mean([np.asarray(value) for value in values]))
