"""The loggers with which each node writes its CSV files; docs/reference/logs.md explains them."""

import functools
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from acme.utils import loggers

from apex_agents.acting.policy import Policy
from apex_agents.builder import Adder
from apex_agents.environments import Episode, VectorEnvironment
from apex_agents.environments.info_metrics import SUCCESS
from apex_agents.experiment import Experiment
from apex_agents.learning.gradient_learner import GradientLearner
from apex_agents.learning.learner import ApexLearner, SampledBatch
from apex_agents.metrics import columns
from apex_agents.metrics.histograms import make_histogram
from apex_agents.metrics.statistics import ReplayStatistics, StatisticsPoller
from apex_agents.replay.messages import ParameterSource
from apex_agents.runs.csv_file import CSVLogger
from apex_agents.runs.workdir import LOGS

PERIOD_SECONDS = 5.0
_SHORTEST_PERIOD_SECONDS = 0.5
_HISTOGRAM_PERIOD_SECONDS = 30.0


def make_logger(
    experiment: Experiment, name: str, more: Callable[[], Mapping[str, float]] = dict
) -> CSVLogger:
    """Open `logs/<name>.csv` for rows that get the run's wall time.

    Args:
      experiment: experiment whose run this is.
      name: name of the file, without `.csv`.
      more: returns further columns, which each row gets too.
    """
    path = pathlib.Path(experiment.workdir, LOGS, f"{name}.csv")
    return CSVLogger(
        path, lambda: {**more(), columns.WALL_TIME_SECONDS: experiment.elapsed_seconds()}
    )


def name_statistics(statistics: ReplayStatistics) -> dict[str, float]:
    """Return the counts of the replay by the names of their columns."""
    return {
        columns.ACTOR_STEPS: statistics.actor_steps,
        columns.REPLAY_SIZE: statistics.replay_size,
        columns.SAMPLES_PER_INSERT: statistics.samples_per_insert,
    }


class ReplayLogger:
    """Writes how many transitions the replay got and gave since the row before."""

    def __init__(
        self,
        experiment: Experiment,
        poller: StatisticsPoller,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Open the replay's CSV file.

        Args:
          experiment: experiment whose run this is.
          poller: reads the counts of all replay servers.
          clock: returns a time in seconds.
        """
        self._logger = make_logger(experiment, columns.REPLAY)
        self._poller = poller
        self._clock = clock
        self._before = list(poller.parts)  # A restored server has its counts back.
        self._last = clock()

    def write_if_due(self) -> None:
        """Write a row if a period has passed since the last one."""
        if self._clock() - self._last >= PERIOD_SECONDS:
            self.write()

    def write(self) -> None:
        """Write a row."""
        before, now, elapsed = self._before, list(self._poller.parts), self._clock() - self._last
        # Skip a server without an earlier reading; after a restart counts begin anew, and a
        # negative difference counts as 0.
        pairs = [(b, n) for b, n in zip(before, now, strict=True) if b is not None]
        inserted, sampled = (
            sum(max(getattr(n, name) - getattr(b, name), 0) for b, n in pairs if n is not None)
            for name in ("inserted", "sampled")
        )
        self._logger.write(
            {
                **name_statistics(self._poller.latest),
                columns.INSERTS_PER_SECOND: inserted / elapsed,
                columns.SAMPLES_PER_SECOND: sampled / elapsed,
            }
        )
        self._before = now
        self._last = self._clock()


class ActorLogger:
    """Writes steps and episodes of one actor, and of its environments, since the row before."""

    def __init__(  # noqa: PLR0913
        self,
        experiment: Experiment,
        index: int,
        environment: VectorEnvironment,
        policy: Policy,
        adders: Sequence[Adder],
        source: ParameterSource,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Open the actor's two CSV files.

        Args:
          experiment: experiment whose run this is.
          index: index of the actor.
          environment: environments of the actor.
          policy: policy of the actor, which tells how each environment explores.
          adders: recorders of the environments' steps.
          source: source of the policy's parameters.
          clock: returns a time in seconds.
        """
        self._logger = make_logger(experiment, columns.actor_file(index))
        self._env_logger = make_logger(experiment, columns.actor_envs_file(index))
        self._env_indices = experiment.run.env_indices(index)
        self._environment = environment
        self._exploration = {
            name: np.broadcast_to(value, environment.num_envs)
            for name, value in policy.exploration.items()
        }
        self._adders = adders
        self._source = source
        self._clock = clock
        self._episodes: list[Episode] = []
        self._lock_steps = 0
        self._last = clock()

    def record(self, episodes: Sequence[Episode]) -> None:
        """Count one lock-step and the episodes it finished; write rows when they are due."""
        self._episodes.extend(episodes)
        self._lock_steps += 1
        if self._clock() - self._last >= PERIOD_SECONDS:
            self._write()

    def close(self) -> None:
        """Write the last steps and episodes, and rows that waited for room on the disk."""
        if self._lock_steps:
            self._write()
        self._logger.close()
        self._env_logger.close()

    def _write(self) -> None:
        now = self._clock()
        agent_steps = self._lock_steps * self._environment.num_envs
        self._logger.write(
            {
                columns.ACTOR_STEPS_PER_SECOND: agent_steps / (now - self._last),
                **_mean_of_episodes(self._episodes),
                **mean_metrics(metric_names(self._environment), self._episodes),
                columns.TRANSITIONS: sum(adder.num_steps for adder in self._adders),
                columns.TRANSITIONS_NOT_FINITE: sum(a.num_not_finite for a in self._adders),
                columns.ENVIRONMENT_FAILURES: self._environment.num_failures,
                columns.PARAMETERS_LEARNER_STEPS: self._source.learner_steps,
            }
        )
        self._env_logger.write_rows(
            {
                columns.ENV_INDEX: self._env_indices[i],
                **{name: values[i] for name, values in self._exploration.items()},
                **_mean_of_episodes(
                    [episode for episode in self._episodes if episode.env_index == i]
                ),
            }
            for i in sorted({episode.env_index for episode in self._episodes})
        )
        self._episodes = []
        self._lock_steps = 0
        self._last = now


def _mean_of_episodes(episodes: Sequence[Episode]) -> dict[str, float]:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else float("nan")

    return {
        columns.EPISODES: len(episodes),
        columns.EPISODE_RETURN: mean([episode.episode_return for episode in episodes]),
        columns.CLIPPED_RETURN: mean([episode.clipped_return for episode in episodes]),
        columns.EPISODE_LENGTH: mean([episode.length for episode in episodes]),
    }


def metric_names(environment: VectorEnvironment) -> Sequence[str]:
    """Return the names of the numbers of `info` that episodes report."""
    return getattr(environment, "metric_names", ())


def mean_metrics(names: Sequence[str], episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the means of metrics over the episodes that have them, NaN without one.

    Where one of the episodes has `is_success`, those without it have failed: environments may have
    it only in the end.
    """
    values: dict[str, list[float]] = {name: [] for name in names}
    for name, value in (metric for episode in episodes for metric in episode.metrics):
        values[name].append(value)
    if found := values.get(SUCCESS):
        found += [0.0] * (len(episodes) - len(found))
    return {name: sum(v) / len(v) if v else math.nan for name, v in values.items()}


class StepLogger(loggers.Logger):
    """Writes means over all steps of a learner since the row before.

    A row follows every five seconds, or a tenth of the time since the first row if that is less, so
    that the curves of a run of some seconds have points, too.
    """

    def __init__(
        self,
        logger: CSVLogger,
        per_second: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ):
        """Write rows into a CSV file.

        Args:
          logger: writes them.
          per_second: columns that are amounts per second, with the names of the amounts per step.
          clock: returns a time in seconds.
        """
        self._logger = logger
        self._per_second = per_second
        self._clock = clock
        self._steps: list[Mapping[str, Any]] = []  # Since the row before.
        self._first: float | None = None
        self._last = clock()

    def write(self, data: Mapping[str, Any]) -> None:
        """Record the metrics of a learner's step; write a row if one is due."""
        self._steps.append(data)
        now = self._clock()
        first = now if self._first is None else self._first
        period = max(_SHORTEST_PERIOD_SECONDS, 0.1 * (now - first))
        if self._first is None or now - self._last >= min(period, PERIOD_SECONDS):
            self.write_row()

    def write_row(self) -> None:
        """Write the metrics since the row before, if there are any."""
        if not self._steps:
            return
        now, steps = self._clock(), self._steps
        names = steps[-1].keys() - self._per_second.values()
        row = {name: _mean_or_newest([step[name] for step in steps]) for name in names}
        for name, amount in self._per_second.items():
            row[name] = sum(step[amount] for step in steps) / (now - self._last)
        self._logger.write(row)
        self._steps = []
        self._first = now if self._first is None else self._first
        self._last = now

    def close(self) -> None:
        self.write_row()
        self._logger.close()


def make_learner_logger(
    experiment: Experiment,
    poller: StatisticsPoller,
    clock: Callable[[], float] = time.monotonic,
) -> StepLogger:
    """Open the CSV file of the learner, whose rows have the counts of the replay, too."""
    logger = make_logger(experiment, columns.LEARNER, lambda: name_statistics(poller.latest))
    per_second = {
        columns.LEARNER_STEPS_PER_SECOND: "num_updates",
        columns.DATA_WAIT_FRACTION: "waiting_seconds",
    }
    return StepLogger(logger, per_second, clock)


def make_gradient_logger(experiment: Experiment, index: int) -> StepLogger:
    """Open the CSV file of one of several learners."""
    per_second = {
        columns.GRADIENTS_PER_SECOND: "num_updates",
        columns.DATA_WAIT_FRACTION: "waiting_seconds",
        columns.PARAMETER_WAIT_FRACTION: "parameter_wait_seconds",
        columns.SEND_FRACTION: "sending_seconds",
    }
    return StepLogger(make_logger(experiment, columns.learner_file(index)), per_second)


class HistogramLogger:
    """Writes the distributions of the newest samples every half a minute, and the last ones."""

    def __init__(
        self,
        experiment: Experiment,
        learner: ApexLearner | GradientLearner,
        clock: Callable[[], float] = time.monotonic,
        node: str = columns.LEARNER,
    ):
        """Prepare for a learner that has its state.

        Args:
          experiment: experiment whose run this is.
          learner: has the samples.
          clock: returns a time in seconds.
          node: name of the learner's own file, beside which this one is.
        """
        self._experiment = experiment
        self._learner = learner
        self._clock = clock
        self._name = columns.histogram_file(node)
        self._last = -np.inf
        self._last_steps = learner.num_steps

    @functools.cached_property
    def _logger(self) -> CSVLogger:
        """The file, which does not exist if the learner has no samples."""
        return make_logger(self._experiment, self._name)

    def write_if_due(self) -> None:
        """Write if a period has passed since the last time."""
        if self._clock() >= self._last + _HISTOGRAM_PERIOD_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the bins of all quantities, unless there was no learner step since the last time.

        A learner without samples has none.
        """
        learner = self._learner
        if self._last_steps < 0:  # One of several learners had not begun; the process before it
            self._last_steps = learner.num_steps  # may have written those of its first parameters.
        if not learner.recent_samples or learner.num_steps == self._last_steps:
            return
        self._last, self._last_steps = self._clock(), learner.num_steps
        quantities, weights = read_quantities(learner.recent_samples)
        self._logger.write_rows(
            {columns.LEARNER_STEPS: learner.num_steps, columns.QUANTITY: quantity, **bin_._asdict()}
            for quantity, values in quantities.items()
            for bin_ in make_histogram(values, weights)
        )


def read_quantities(samples: Sequence[Any]) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Join the newest samples of a learner, of which there has to be at least one.

    Of transitions there are these quantities:

    - `priority`: priority in the replay when the transition was sampled;
    - `td_error`: `|td error|`, the new priority;
    - `age_steps`: learner steps since the parameters with which the action was chosen;
    - `times_sampled`: number of times that the transition had been sampled by then.

    Args:
      samples: batches, or how stale each applied gradient was, in learner steps.

    Returns:
      Values by the quantity's name, `[N]` each, and how many transitions of the replay, or
      gradients, each of them stands for, `[N]`: 1 / (number of transitions in the replay *
      probability of being sampled), whose mean over many samples is 1.
    """
    if not isinstance(samples[0], SampledBatch):
        return {columns.STALENESS_STEPS: np.array(samples)}, np.ones(len(samples))
    batches = [_read_batch(batch) for batch in samples]
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    weights = joined.pop("weight")
    return joined, weights


def _read_batch(batch: SampledBatch) -> Mapping[str, np.ndarray]:
    probability = np.asarray(batch.info.probability, np.float64)
    return {
        "priority": np.asarray(batch.info.priority),
        "td_error": np.asarray(batch.td_error),
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        "age_steps": np.maximum(batch.learner_steps - np.asarray(batch.acted_with), 0),
        "times_sampled": np.asarray(batch.info.times_sampled),
        "weight": 1 / (np.asarray(batch.info.table_size) * probability),
    }


def _mean_or_newest(values: Sequence[Any]) -> float:
    """Return the newest one of integers, which are counts, and the mean of other numbers."""
    newest = np.asarray(values[-1])
    if np.issubdtype(newest.dtype, np.integer):
        return newest.item()
    return float(np.mean([np.asarray(value) for value in values]))
