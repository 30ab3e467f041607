"""A function of the user's that is called after each evaluation, and may end the run."""

import logging
import os
import pathlib
import reprlib
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from apex_agents.metrics import columns
from apex_agents.metrics.exports import Histogram, Scalars
from apex_agents.runs.workdir import BEST_CHECKPOINT
from apex_agents.waits import describe

_PREFIX = f"{columns.EVALUATOR}/"
_MEAN_RETURN = _PREFIX + columns.MEAN_RETURN


class EvaluationRecord(NamedTuple):
    """An evaluation, as `train(on_evaluation=...)` gets it.

    Attributes:
      actor_steps: agent steps of all actors when it began.
      learner_steps: learner steps of the evaluated parameters.
      mean_return: mean return of its episodes.
      num_episodes: number of its episodes.
      metrics: means of the numbers of `info` that its episodes had, by name.
      folder: folder of the run, for `apex_agents.load`.
      best_parameters: file with the parameters of the best evaluation so far.
    """

    actor_steps: int
    learner_steps: int
    mean_return: float
    num_episodes: int
    metrics: Mapping[str, float]
    folder: pathlib.Path
    best_parameters: pathlib.Path


class EvaluationCallback:
    """Calls a function for each new row of the evaluator; see `metrics.exports.Export`.

    Attributes:
      reason: why the run is over, if the function returned True.
      error: what the function raised.
      is_stopping: whether the run stops already, or is over: no signal is sent any more.
      is_busy: whether the function is being called.
    """

    def __init__(self, function: Callable[[EvaluationRecord], Any], folder: pathlib.Path):
        """Call nothing yet."""
        self._function = function
        self._folder = folder
        self.reason = ""
        self.error: BaseException | None = None
        self.is_stopping = self.is_busy = False
        self._has_warned = False

    @property
    def cause(self) -> str:
        """Why the function ends the run, as one line; empty if it does not."""
        return self.reason if self.error is None else f"on_evaluation raised {describe(self.error)}"

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        self.is_busy = True
        try:
            for item in items:
                if isinstance(item, Histogram) or _MEAN_RETURN not in item.values:
                    continue
                if not self.cause:
                    self._call(item.values, item.step)
        finally:
            self.is_busy = False

    def close(self) -> None:
        """Do nothing."""

    def _call(self, values: Mapping[str, float], learner_steps: int) -> None:
        values = {name.removeprefix(_PREFIX): value for name, value in values.items()}
        record = EvaluationRecord(
            actor_steps=int(values.pop(columns.ACTOR_STEPS)),
            learner_steps=learner_steps,
            mean_return=values.pop(columns.MEAN_RETURN),
            num_episodes=int(values.pop("num_episodes")),
            metrics={k: v for k, v in values.items() if k not in _OTHERS},
            folder=self._folder,
            best_parameters=self._folder / BEST_CHECKPOINT,
        )
        try:
            self._read(self._function(record))
        except BaseException as error:  # It is raised in the end, when the run has been saved.
            self.error = error
        if self.cause and not self.is_stopping:
            os.kill(os.getpid(), signal.SIGINT)  # As Ctrl-C does, which stops all kinds of nodes.

    def _read(self, returned: Any) -> None:
        if isinstance(returned, bool | np.bool_):
            self.reason = "on_evaluation returned True" if returned else ""
        elif returned is not None and not self._has_warned:
            self._has_warned = True
            logging.warning(
                "on_evaluation returned %s, which has no effect; True would end the run.",
                reprlib.repr(returned),
            )


_OTHERS = (columns.LEARNER_STEPS, columns.STANDARD_ERROR, columns.ENVIRONMENT_FAILURES)
