"""The evaluator: plays with the newest parameters, reports the result and keeps the best.

Horgan et al. 2018, section 4.1 and appendix B: a separate actor that adds no data. The learner ends
a run when the parameters of its last step have been evaluated.
"""

import contextlib
import functools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import launchpad as lp
import numpy as np
import reverb
import tensorflow as tf
from acme.tf import variable_utils

from apex_agents.acting.actor import ApexActor
from apex_agents.environments import Episode
from apex_agents.evaluation.episodes import play_episodes, standard_error
from apex_agents.evaluation.videos import EvaluationVideos
from apex_agents.experiment import Experiment
from apex_agents.metrics import columns
from apex_agents.metrics.loggers import make_logger, mean_metrics, metric_names
from apex_agents.metrics.statistics import (
    StatisticsPoller,
    read_actor_steps,
)
from apex_agents.nodes.node import Replays, await_answer, num_restarts
from apex_agents.replay.messages import (
    EVALUATION,
    Evaluation,
    ParameterSource,
    Publisher,
    to_arrays,
)
from apex_agents.replay.tables import if_reachable
from apex_agents.run_end import end_reason
from apex_agents.runs.csv_file import RowReader
from apex_agents.runs.parameter_file import by_variable_name, read_steps, save_parameters
from apex_agents.runs.workdir import BEST_CHECKPOINT, LOGS
from apex_agents.waits import WORKS, say

Variables = Mapping[str, Sequence[tf.Variable]]

_CHECK_PERIOD_SECONDS = 0.1


def run_evaluator(experiment: Experiment, replays: Replays, index: int) -> None:
    """Evaluate new parameters of an experiment until the program stops; see `builder.Role`."""
    stop, clients = lp.stop_event(), replays.connect()
    with contextlib.closing(Evaluator(experiment, clients, stop.is_set)) as evaluator:
        await_answer(clients, stop.is_set)
        while not stop.is_set():
            next_start = time.monotonic() + experiment.run.evaluation.min_period_seconds
            is_done = evaluator.evaluate()
            if is_done:
                say(WORKS)
            while not stop.wait(_CHECK_PERIOD_SECONDS):
                if not is_done or evaluator.has_last_step() or time.monotonic() >= next_start:
                    break


class Evaluator:
    """Evaluates published parameters, each of them once, also across restarts of the run.

    An evaluation becomes a row of `logs/evaluator.csv` and a message to the learner. Parameters
    whose mean return is the best of the run go to `checkpoints/best.npz`. If the config asks for
    videos, some evaluations are filmed.
    """

    def __init__(
        self,
        experiment: Experiment,
        clients: Sequence[reverb.Client],
        should_stop: Callable[[], bool],
    ):
        """Make the environments and the policy, and read the evaluations before a restart."""
        builder, num_episodes = experiment.builder, experiment.run.evaluation.num_episodes
        seed = experiment.run.node_seed("evaluator")
        self._run = experiment.run
        self._clients = clients
        self._publishers = [Publisher(client, EVALUATION) for client in clients]
        self._should_stop = should_stop
        self._videos = EvaluationVideos(experiment, num_restarts())
        self._environment = self._videos.make_vector_environment(num_episodes, seed)
        self._policy = builder.make_evaluation_policy(self._environment.spec, num_episodes, seed)
        # It has no variable client: the parameters stay the same for a whole evaluation.
        self._actor = ApexActor(self._policy)
        self._source = ParameterSource(clients, should_stop)
        self._variables = variable_utils.VariableClient(self._source, self._policy.variables)
        self._logger = make_logger(experiment, columns.EVALUATOR)
        past = _read_past_evaluations(experiment)
        self._latest = past[-1] if past else None
        self._best = BestParameters(pathlib.Path(experiment.workdir, BEST_CHECKPOINT), past)
        if self._latest is not None:  # It may have died between writing and reporting.
            self._report(self._latest)
        self._poller = StatisticsPoller(clients, experiment.data_flow())

    def has_last_step(self) -> bool:
        """Return whether the learner has finished: its last parameters need not wait."""
        return self._poller.latest.last_step is not None

    def evaluate(self) -> bool:
        """Evaluate the newest parameters, unless they are not due or were never updated.

        After an evaluation that reached the run's target there are no others. When the learner
        finishes, an evaluation of older parameters than its last ones is abandoned.

        Returns:
          Whether an evaluation was completed.
        """
        if end_reason(self._run, evaluation=self._latest):
            return False
        self._variables.update_and_wait()
        learner_steps = self._source.learner_steps
        if not self._is_due(learner_steps):
            return False
        actor_steps = self._count_actor_steps()

        def should_stop() -> bool:
            return self._should_stop() or learner_steps < (self._poller.latest.last_step or 0)

        with self._videos.film(self._actor, self._environment, learner_steps) as actor:
            episodes = play_episodes(self._environment, actor, should_stop)
        if episodes is None:
            return False
        self._latest = _summarise(episodes, learner_steps, actor_steps)
        self._best.offer(float(self._latest.mean_return), self._policy.variables, learner_steps)
        values = {name: float(value) for name, value in self._latest._asdict().items()}
        metrics = mean_metrics(metric_names(self._environment), episodes)
        failures = {columns.ENVIRONMENT_FAILURES: self._environment.num_failures}
        self._logger.write({**values, **metrics, **failures})
        self._report(self._latest)
        return True

    def close(self) -> None:
        """Save unsaved parameters and release everything."""
        self._best.save()
        self._poller.close()
        for publisher in self._publishers:
            publisher.close()
        self._logger.close()
        self._environment.close()

    def _is_due(self, learner_steps: int) -> bool:
        """Return whether parameters are new enough, or the run's last ones."""
        if self._latest is None:
            return learner_steps > 0
        age = learner_steps - int(self._latest.learner_steps)
        if self.has_last_step():  # They may be older, after the learner was restarted.
            return age != 0
        return age > 0 and age >= self._run.evaluation.min_period_learner_steps

    def _count_actor_steps(self) -> int:
        """Return the steps of all actors, while a server is away those at the last look."""
        counts = [
            if_reachable(functools.partial(read_actor_steps, client)) for client in self._clients
        ]
        known = [sum(of_server) for of_server in counts if of_server is not None]
        return sum(known) if len(known) == len(counts) else self._poller.latest.actor_steps

    def _report(self, evaluation: Evaluation) -> None:
        for publisher in self._publishers:
            publisher.publish(evaluation)


class BestParameters:
    """Keeps the parameters of the best evaluation on disk, or in memory while the disk is full."""

    def __init__(self, path: pathlib.Path, past: Sequence[Evaluation]):
        """Continue after `past` evaluations; the `.npz` file, if it exists, is of one of them."""
        self._path = path
        saved = list(past) if path.exists() else []
        with contextlib.suppress(ValueError):  # The best one may have found a full disk.
            steps = read_steps(path)
            saved = [e for e in saved if int(e.learner_steps) == steps] or saved
        returns = [float(evaluation.mean_return) for evaluation in saved]
        self._best_return = max(returns, default=-np.inf)
        self._unsaved: tuple[dict[str, np.ndarray], int] | None = None

    def offer(self, mean_return: float, variables: Variables, learner_steps: int) -> None:
        """Save a copy of the variables unless an earlier evaluation had a higher return."""
        if mean_return >= self._best_return:
            self._best_return = mean_return
            self._unsaved = by_variable_name(variables, to_arrays(variables)), learner_steps
        self.save()

    def save(self) -> None:
        """Save parameters that could not be saved before."""
        if self._unsaved is not None and save_parameters(self._path, *self._unsaved):
            self._unsaved = None


def _read_past_evaluations(experiment: Experiment) -> list[Evaluation]:
    """Read the evaluations of the run before it was restarted, without corrupted rows."""
    evaluations = []
    path = pathlib.Path(experiment.workdir, LOGS, f"{columns.EVALUATOR}.csv")
    for row in RowReader(path).read():
        values = [row.get(name) for name in Evaluation._fields]
        if all(isinstance(value, float) for value in values):
            evaluations.append(Evaluation(*[np.asarray(value, np.float64) for value in values]))
    return evaluations


def _summarise(episodes: Sequence[Episode], learner_steps: int, actor_steps: int) -> Evaluation:
    returns = np.array([episode.episode_return for episode in episodes])
    values = (returns.mean(), standard_error(returns), len(returns), learner_steps, actor_steps)
    return Evaluation(*[np.asarray(value, np.float64) for value in values])
