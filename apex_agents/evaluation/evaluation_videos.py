"""Videos of a run's evaluations, now and then."""

import contextlib
import logging
import pathlib
import time
from collections.abc import Iterator

import numpy as np
from acme import core

from apex_agents.environments import VectorEnvironment
from apex_agents.evaluation.filming import FilmedActor
from apex_agents.evaluation.video import PARTIAL
from apex_agents.experiment import Experiment
from apex_agents.nodes.node import num_restarts
from apex_agents.runs.files import report_failure, report_success
from apex_agents.runs.workdir import VIDEOS


class EvaluationVideos:
    """Films the first environment of an evaluation when a video is due."""

    def __init__(self, experiment: Experiment):
        """Remove what a process that was killed left of a video."""
        self._experiment = experiment
        self._period = experiment.run.evaluation.video_period_seconds
        self._folder = pathlib.Path(experiment.workdir, VIDEOS)
        # A process that died of a video dies no sooner than after a period again.
        self._next = time.monotonic() + (self._period or 0.0) if num_restarts() else -np.inf
        for partial in self._folder.glob(f"*{PARTIAL}"):
            with contextlib.suppress(OSError):
                partial.unlink()

    def make_vector_environment(self, num_envs: int, seed: int) -> VectorEnvironment:
        """Make the environments of the evaluator; the first one can be filmed."""
        make = self._experiment.make_vector_environment
        if self._period is not None:
            try:
                return make(num_envs, seed, True, 1)
            except ValueError as error:
                self._give_up(error)
        return make(num_envs, seed, True)

    @contextlib.contextmanager
    def film(
        self, actor: core.Actor, environment: VectorEnvironment, learner_steps: int
    ) -> Iterator[core.Actor]:
        """Give the actor for one evaluation: one that is filmed if a video is due.

        Args:
          actor: what acts.
          environment: made by `make_vector_environment`.
          learner_steps: of its parameters.

        Yields:
          What acts in its place.
        """
        if self._period is None or time.monotonic() < self._next:
            yield actor
            return
        self._next = time.monotonic() + self._period
        path = self._folder / f"learner-{learner_steps:012d}.mp4"
        captions = (self._experiment.task, f"learner step {learner_steps:,}")
        with contextlib.closing(
            FilmedActor(actor, environment, [path], captions, self._on_trouble)
        ) as filmed:
            yield filmed
        if filmed.finished:
            report_success(self._folder)

    def _on_trouble(self, error: Exception) -> None:
        if isinstance(error, OSError):  # A full disk: there may be room for the next one.
            report_failure(self._folder, error)
        else:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._period = None
        logging.warning("The run goes on without videos: %s", error)
