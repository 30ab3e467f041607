"""The evaluator: plays with the newest parameters, reports, keeps the best.

Horgan et al. 2018, section 4.1 and appendix B: a separate actor that adds no data.
"""

import contextlib
import pathlib
import time
from collections.abc import Mapping, Sequence

import launchpad as lp
import numpy as np
import reverb
import tensorflow as tf
from acme.tf import variable_utils

from apex_agents.acting.actor import ApexActor
from apex_agents.environments import Episode
from apex_agents.evaluation.episodes import play_episodes, standard_error
from apex_agents.evaluation.evaluation_videos import EvaluationVideos
from apex_agents.experiment import Experiment
from apex_agents.metrics import columns
from apex_agents.metrics.loggers import RunLogger
from apex_agents.nodes.node import report_ready
from apex_agents.replay.messages import Evaluation
from apex_agents.replay.parameters import ParameterSource, to_arrays
from apex_agents.replay.statistics import StatisticsPoller, report_evaluation
from apex_agents.runs.folder import RowReader
from apex_agents.runs.parameter_file import save_parameters
from apex_agents.runs.workdir import BEST_CHECKPOINT, EVALUATOR_CSV


def run_evaluator(experiment: Experiment, client: reverb.Client) -> None:
    """Evaluate new parameters again and again until the program stops.

    Each evaluation is a row of `logs/evaluator.csv` and is reported to the learner; parameters that
    reach the best mean return so far go to `checkpoints/best.npz`. Some are filmed, if the config
    asks for it.

    Args:
      experiment: what is evaluated, and how often.
      client: connected to the replay server.
    """
    builder, config = experiment.builder, experiment.run.evaluation
    should_stop = lp.stop_event().is_set
    seed = experiment.run.node_seed("evaluator")
    videos = EvaluationVideos(experiment)
    environment = videos.make_vector_environment(config.num_episodes, seed)
    policy = builder.make_evaluation_policy(environment.spec, config.num_episodes, seed)
    source = ParameterSource(client, should_stop)
    poller = StatisticsPoller(client, builder.config.replay.replicas)
    variable_client = variable_utils.VariableClient(source, policy.variables)
    actor = ApexActor(policy)  # Without a client: parameters stay for a whole evaluation.
    logger = RunLogger(experiment, columns.EVALUATOR)
    past = _read_past_evaluations(experiment)
    best = BestParameters(pathlib.Path(experiment.workdir, BEST_CHECKPOINT), past)
    latest = past[-1] if past else None
    evaluated_steps = latest.learner_steps if latest is not None else 0
    while not should_stop():
        started = time.monotonic()
        if latest is not None and poller.latest.evaluation is None:
            _report(client, latest)  # To a new server, or one that the evaluator before died on.
        variable_client.update_and_wait()
        if source.learner_steps <= evaluated_steps:
            time.sleep(0.1)
            continue
        with videos.film(actor, environment, source.learner_steps) as filmed:
            episodes = play_episodes(environment, filmed, should_stop)
        if episodes is None:
            break
        report_ready()
        evaluated_steps = source.learner_steps
        latest = _summarise(episodes, evaluated_steps, poller.latest.actor_steps)
        best.offer(float(latest.mean_return), policy.variables, evaluated_steps)
        logger.write({name: float(value) for name, value in latest._asdict().items()})
        _report(client, latest)
        remaining = started + config.min_period_seconds - time.monotonic()
        lp.stop_event().wait(max(remaining, 0))
    best.save()
    poller.close()
    logger.close()
    environment.close()


class BestParameters:
    """Keeps the parameters of the best evaluation: on disk or, until there is room, in memory."""

    def __init__(self, path: pathlib.Path, past: Sequence[Evaluation]):
        """Take up where the run was.

        Args:
          path: of the file.
          past: evaluations that the run had before; the best of them is in the file, if it exists.
        """
        self._path = path
        returns = [float(evaluation.mean_return) for evaluation in past if path.exists()]
        self._best_return = max(returns, default=-np.inf)
        self._unsaved: tuple[dict[str, list[np.ndarray]], int] | None = None

    def offer(
        self,
        mean_return: float,
        variables: Mapping[str, Sequence[tf.Variable]],
        learner_steps: int,
    ) -> None:
        """Keep a copy of the variables if no evaluation before was better."""
        if mean_return >= self._best_return:
            self._best_return = mean_return
            self._unsaved = to_arrays(variables), learner_steps
        self.save()

    def save(self) -> None:
        """Save what is not saved yet, if there is room now."""
        if self._unsaved is not None and save_parameters(self._path, *self._unsaved):
            self._unsaved = None


def _read_past_evaluations(experiment: Experiment) -> list[Evaluation]:
    """Read the evaluations that the run had before it was stopped; a torn row is left out."""
    evaluations = []
    newest = pathlib.Path(experiment.workdir, EVALUATOR_CSV)
    # Those of other columns are called evaluator.1.csv, ..., which sorts before evaluator.csv.
    for path in sorted(newest.parent.glob(f"{newest.stem}*.csv")):
        for row in RowReader(path).read():
            with contextlib.suppress(KeyError, ValueError):
                values = [np.asarray(row[name], np.float64) for name in Evaluation._fields]
                evaluations.append(Evaluation(*values))
    return evaluations


def _report(client: reverb.Client, evaluation: Evaluation) -> None:
    with contextlib.suppress(RuntimeError, reverb.errors.ReverbError):
        report_evaluation(client, evaluation)  # Its row is written: go on without the server.


def _summarise(episodes: Sequence[Episode], learner_steps: int, actor_steps: int) -> Evaluation:
    returns = np.array([episode.episode_return for episode in episodes])
    values = (
        returns.mean(),
        standard_error(returns),
        len(returns),
        learner_steps,
        actor_steps,
    )
    return Evaluation(*[np.asarray(value, np.float64) for value in values])
