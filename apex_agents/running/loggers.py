"""What each node writes into `logs/`: one CSV file per node, by Acme's CSV logger."""

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from acme.utils import loggers

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.environments import Episode, Lanes
from apex_agents.experiment import Experiment
from apex_agents.replay.parameters import ParameterSource
from apex_agents.replay.statistics import StatisticsPoller
from apex_agents.running.csv_file import CSVFile

_ACTOR_PERIOD_SECONDS = 5.0


def make_csv_logger(experiment: Experiment, node: str) -> loggers.Logger:
    """Open `logs/<node>.csv` for appending; every row is on disk at once, if there is room."""
    file = CSVFile(pathlib.Path(experiment.workdir, "logs", f"{node}.csv"))
    return loggers.CSVLogger(file, flush_every=1)


class _RunLogger(loggers.Logger):
    """Adds the wall time and the replay's statistics to every row."""

    def __init__(self, logger: loggers.Logger, experiment: Experiment, poller: StatisticsPoller):
        self._logger = logger
        self._experiment = experiment
        self._poller = poller

    def write(self, data: Mapping[str, Any]) -> None:
        statistics = self._poller.latest
        self._logger.write(
            {
                **data,
                "actor_steps": statistics.actor_steps,
                "replay_size": statistics.replay_size,
                "samples_per_insert": statistics.samples_per_insert,
                "wall_time_seconds": self._experiment.elapsed_seconds(),
            }
        )

    def close(self) -> None:
        self._logger.close()


def make_learner_logger(experiment: Experiment, poller: StatisticsPoller) -> loggers.Logger:
    """Build the logger that `ApexLearner` writes to."""
    return _RunLogger(make_csv_logger(experiment, "learner"), experiment, poller)


class ActorLogger:
    """Sums up what the lanes of one actor did, every few seconds."""

    def __init__(
        self,
        experiment: Experiment,
        index: int,
        lanes: Lanes,
        adders: Sequence[PrioritizedNStepAdder],
        source: ParameterSource,
    ):
        """Open the actor's CSV file."""
        self._logger = make_csv_logger(experiment, f"actor_{index}")
        self._experiment = experiment
        self._lanes = lanes
        self._adders = adders
        self._source = source
        self._episodes: list[Episode] = []
        self._lock_steps = 0
        self._last = time.monotonic()

    def record(self, episodes: Sequence[Episode]) -> None:
        """Count one lock-step and the episodes it finished; write a row when one is due."""
        self._episodes.extend(episodes)
        self._lock_steps += 1
        if time.monotonic() - self._last >= _ACTOR_PERIOD_SECONDS:
            self._write()

    def close(self) -> None:
        """Write what is left and close the file."""
        if self._lock_steps:
            self._write()
        self._logger.close()

    def _write(self) -> None:
        elapsed = time.monotonic() - self._last
        self._logger.write(
            {
                "wall_time_seconds": self._experiment.elapsed_seconds(),
                "actor_steps_per_second": self._lock_steps * len(self._adders) / elapsed,
                "episodes": len(self._episodes),
                "episode_return": _mean([e.episode_return for e in self._episodes]),
                "clipped_return": _mean([e.clipped_return for e in self._episodes]),
                "episode_length": _mean([e.length for e in self._episodes]),
                "transitions": sum(adder.num_transitions for adder in self._adders),
                "transitions_not_finite": sum(adder.num_not_finite for adder in self._adders),
                "environment_failures": self._lanes.num_failures,
                "parameters_learner_steps": self._source.learner_steps,
            }
        )
        self._episodes = []
        self._lock_steps = 0
        self._last = time.monotonic()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
