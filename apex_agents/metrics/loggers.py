"""What each node writes into `logs/`: CSV files, by Acme's CSV logger.

`docs/logs.md` explains every column.
"""

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import reverb
from acme.utils import loggers

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import Policy
from apex_agents.environments import Episode, VectorEnvironment
from apex_agents.experiment import Experiment
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.samples import SampledTransitions
from apex_agents.metrics.histograms import make_histogram
from apex_agents.replay.parameters import ParameterSource
from apex_agents.replay.statistics import ReplayStatistics, StatisticsPoller, read_statistics
from apex_agents.runs.csv_file import CSVFile

_PERIOD_SECONDS = 5.0
_HISTOGRAM_PERIOD_SECONDS = 30.0


def make_csv_logger(experiment: Experiment, name: str, flush_every: int = 1) -> loggers.Logger:
    """Open `logs/<name>.csv` for appending.

    Args:
      experiment: whose wall time is added to every row.
      name: of the file.
      flush_every: rows after which what was written is on disk, if there is room.
    """
    file = CSVFile(pathlib.Path(experiment.workdir, "logs", f"{name}.csv"))
    logger = loggers.CSVLogger(file, flush_every=flush_every)
    return _TimedLogger(logger, experiment)


class _TimedLogger(loggers.Logger):
    """Adds the wall time to every row."""

    def __init__(self, logger: loggers.CSVLogger, experiment: Experiment):
        self._logger = logger
        self._experiment = experiment

    def write(self, data: Mapping[str, Any]) -> None:
        self._logger.write({**data, "wall_time_seconds": self._experiment.elapsed_seconds()})

    def flush(self) -> None:
        self._logger.flush()

    def close(self) -> None:
        self._logger.close()


class LearnerLogger(loggers.Logger):
    """Adds to the learner's rows how far the whole run is."""

    def __init__(self, experiment: Experiment, poller: StatisticsPoller):
        """Open the learner's CSV file."""
        self._logger = make_csv_logger(experiment, "learner")
        self._poller = poller

    def write(self, data: Mapping[str, Any]) -> None:
        """Write one row."""
        statistics = self._poller.latest
        self._logger.write(
            {
                **data,
                "actor_steps": statistics.actor_steps,
                "replay_size": statistics.replay_size,
                "samples_per_insert": statistics.samples_per_insert,
            }
        )

    def close(self) -> None:
        """Close the file."""
        self._logger.close()


class HistogramLogger:
    """Writes the distributions of the learner's newest batches to a CSV file."""

    def __init__(self, experiment: Experiment):
        """Open the file."""
        self._logger = make_csv_logger(experiment, "learner_histograms", flush_every=1000)
        self._last = -np.inf

    def write_if_due(self, learner: ApexLearner) -> None:
        """Write the bins of all quantities, if the last time is long enough ago."""
        if time.monotonic() < self._last + _HISTOGRAM_PERIOD_SECONDS:
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


class ReplayLogger:
    """Writes what passed through the replay since the row before."""

    def __init__(self, experiment: Experiment, client: reverb.Client):
        """Open the replay's CSV file."""
        self._logger = make_csv_logger(experiment, "replay")
        self._client = client
        self._replicas = experiment.builder.config.replay.replicas
        self._before = self._read() or ReplayStatistics()  # A restored server has its counts back.
        self._last = time.monotonic()

    def write_if_due(self) -> None:
        """Write a row if it is time for one."""
        if time.monotonic() - self._last >= _PERIOD_SECONDS:
            self.write()

    def write(self) -> None:
        """Write a row, unless the server is too busy to tell."""
        if (now := self._read()) is None:
            return
        before, elapsed = self._before, time.monotonic() - self._last
        self._logger.write(
            {
                "actor_steps": now.actor_steps,
                "replay_size": now.replay_size,
                "inserts_per_second": (now.inserted - before.inserted) / elapsed,
                "samples_per_second": (now.sampled - before.sampled) / elapsed,
                "samples_per_insert": now.samples_per_insert,
            }
        )
        self._before = now
        self._last = time.monotonic()

    def _read(self) -> ReplayStatistics | None:
        try:
            return read_statistics(self._client, self._replicas)
        except (RuntimeError, reverb.errors.ReverbError):
            return None


class ActorLogger:
    """Sums up what one actor did, and each of its environments, every few seconds."""

    def __init__(
        self,
        experiment: Experiment,
        index: int,
        environment: VectorEnvironment,
        policy: Policy,
        adders: Sequence[PrioritizedNStepAdder],
        source: ParameterSource,
    ):
        """Open the actor's two CSV files."""
        self._logger = make_csv_logger(experiment, f"actor_{index}")
        self._env_logger = make_csv_logger(experiment, f"actor_{index}_envs")
        self._first_env = index * environment.num_envs
        self._environment = environment
        self._exploration = {
            name: np.broadcast_to(value, environment.num_envs)
            for name, value in policy.exploration.items()
        }
        self._adders = adders
        self._source = source
        self._episodes: list[Episode] = []
        self._lock_steps = 0
        self._last = time.monotonic()

    def record(self, episodes: Sequence[Episode]) -> None:
        """Count one lock-step and the episodes it finished; write rows when they are due."""
        self._episodes.extend(episodes)
        self._lock_steps += 1
        if time.monotonic() - self._last >= _PERIOD_SECONDS:
            self._write()

    def close(self) -> None:
        """Write what is left and close the files."""
        if self._lock_steps:
            self._write()
        self._logger.close()
        self._env_logger.close()

    def _write(self) -> None:
        elapsed = time.monotonic() - self._last
        self._logger.write(
            {
                "actor_steps_per_second": self._lock_steps * self._environment.num_envs / elapsed,
                **_summarise(self._episodes),
                "transitions": sum(adder.num_transitions for adder in self._adders),
                "transitions_not_finite": sum(adder.num_not_finite for adder in self._adders),
                "environment_failures": self._environment.num_failures,
                "parameters_learner_steps": self._source.learner_steps,
            }
        )
        for env_index in sorted({episode.env_index for episode in self._episodes}):
            self._env_logger.write(
                {
                    "env_index": self._first_env + env_index,
                    **{name: values[env_index] for name, values in self._exploration.items()},
                    **_summarise([e for e in self._episodes if e.env_index == env_index]),
                }
            )
        self._episodes = []
        self._lock_steps = 0
        self._last = time.monotonic()


def _summarise(episodes: Sequence[Episode]) -> dict[str, float]:
    return {
        "episodes": len(episodes),
        "episode_return": _mean([episode.episode_return for episode in episodes]),
        "clipped_return": _mean([episode.clipped_return for episode in episodes]),
        "episode_length": _mean([episode.length for episode in episodes]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
