"""Gradients that are computed here and applied there: by several learners, or by actors.

Several learners compute them of batches of their own, the actors of A2C and A3C of their rollouts.
The parameter server is a learner whose data are gradients (`learning/gradients.py`). It publishes
parameters for everybody, and for the learners the variables of the target networks, too
(`learning/following.py`). All of this travels through the first replay server.
"""

from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp
import reverb
from acme.utils import loggers

from apex_agents.config import RunConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.experiment import Experiment
from apex_agents.learning.following import (
    FollowingSource,
    ParameterFollower,
    TargetPublisher,
    make_following_tables,
    make_target_table,
)
from apex_agents.learning.gradient_learner import (
    GradientLearner,
    OutlierFilter,
    make_compute_on_sample,
    metric_names,
)
from apex_agents.learning.gradients import (
    GradientSender,
    GradientSource,
    count_parameters,
    make_gradient_dataset,
    make_gradient_table,
)
from apex_agents.learning.learner import ApexLearner
from apex_agents.metrics import columns
from apex_agents.metrics.loggers import HistogramLogger, make_gradient_logger
from apex_agents.nodes.node import Replays, await_answer
from apex_agents.replay.connections import ReplayConnections
from apex_agents.replay.messages import ParameterSource
from apex_agents.validation import require
from apex_agents.waits import WORKS, say


def add_gradient_tables(
    tables: Sequence[reverb.Table], builder: Any, spec: EnvironmentSpec, run: RunConfig
) -> list[reverb.Table]:
    """Add what a run needs where gradients are sent to the tables of its builder."""
    if run.num_learners == 1:
        num_followers = run.num_actors if actors_wait_for_versions(builder) else 0
        return [*tables, *make_following_tables(tables, num_followers)]
    update = builder.make_update(spec)
    return [
        *tables,
        make_gradient_table(
            count_parameters(update.trained),
            None,
            run.num_learners,
            bfloat16=run.learners.bfloat16,
        ),
        *make_following_tables(tables, _waiting_learners(run)),
        make_target_table(update),
    ]


def _waiting_learners(run: RunConfig) -> int:
    return 0 if run.learners.wait_seconds is None else run.num_learners


def actors_wait_for_versions(builder: Any) -> bool:
    """Return whether actors compute a gradient of each version, as those of A2C do."""
    return getattr(builder.config, "is_synchronous", False)


def make_parameter_source(
    follows: bool, client: reverb.Client, index: int, should_stop: Callable[[], bool]
) -> ParameterSource:
    """Build the source of the parameters of an actor or a learner, which may follow versions."""
    if follows:
        return FollowingSource(client, index, should_stop)
    return ParameterSource(client, should_stop)


def make_parameter_server(
    builder: Any,
    run: RunConfig,
    gradients: Sequence[reverb.Client],
    spec: EnvironmentSpec,
    clients: Sequence[reverb.Client],
    seed: int = 0,
    **options: Any,
) -> ApexLearner:
    """Build the learner that applies the gradients of the others.

    Args:
      builder: maker of the agent's parts.
      run: number of learners, and how they work together.
      gradients: client of the first replay server, which has the gradients.
      spec: specification of one environment.
      clients: clients of all replay servers, on which parameters are published.
      seed: seed of the initial parameters.
      **options: `logger` and `should_stop` as in `Builder.make_learner`.
    """
    update, settings = builder.make_update(spec, seed), run.learners
    samples = builder.sample_spec(gradients[0], spec)
    names = metric_names(make_compute_on_sample(update, builder.config), samples)
    limit, allowed = settings.num_deviations, "None: metrics of the agent's update have no 'loss'"
    require(limit is None or "loss" in names, "run.learners.num_deviations", limit, allowed)
    of_table = count_parameters(update.trained), len(names), settings.bfloat16
    source = GradientSource(
        update,
        ReplayConnections(gradients, lambda client: make_gradient_dataset(client, *of_table)),
        names,
        settings.wait_seconds,
        settings.max_staleness,
    )
    return ApexLearner(update, source, TargetPublisher(clients, update), **options)


def make_gradient_learner(  # noqa: PLR0913
    builder: Any,
    spec: EnvironmentSpec,
    run: RunConfig,
    clients: Sequence[reverb.Client],
    index: int,
    logger: loggers.Logger | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> GradientLearner:
    """Build one of several learners.

    Args:
      builder: maker of the agent's parts.
      spec: specification of one environment.
      run: number of learners, and how they work together.
      clients: clients of all replay servers; the first of them gets the gradients.
      index: index of the learner.
      logger: receives learner steps, speeds and metrics.
      should_stop: asked while waiting.
    """
    config, settings = builder.config, run.learners
    update, shared = builder.make_update(spec), builder.share(len(clients))
    replays = ReplayConnections(clients, lambda c: shared.make_dataset(c, spec), config.batch_size)
    follows = _waiting_learners(run) > 0
    source = make_parameter_source(follows, clients[0], index, should_stop)
    follower = ParameterFollower(clients[0], source, update, settings.wait_seconds, should_stop)
    sender = GradientSender(
        clients[0],
        [index],
        run.num_learners,
        should_stop,
        lambda: follower.learner_steps,
        settings.bfloat16,
    )
    outlier_filter = None
    if settings.wait_seconds is None and settings.num_deviations is not None:
        outlier_filter = OutlierFilter(settings.num_deviations)
    return GradientLearner(
        update, replays, config, follower, sender, outlier_filter, logger, should_stop
    )


def run_gradient_learner(experiment: Experiment, replays: Replays, index: int) -> GradientLearner:
    """Compute gradients, as one of several learners, until the program stops.

    Returns:
      The learner, which keeps its connections.
    """
    clients, stop = replays.connect(), lp.stop_event()
    builder, run, spec = experiment.builder, experiment.run, experiment.environment_spec()
    logger = make_gradient_logger(experiment, index)
    learner = make_gradient_learner(builder, spec, run, clients, index, logger, stop.is_set)
    histograms = None
    if index == 0:  # The others sample the same.
        histograms = HistogramLogger(experiment, learner, node=columns.learner_file(index))
    await_answer(clients, stop.is_set)
    while not stop.is_set():
        learner.step()
        say(WORKS)
        if histograms is not None:
            histograms.write_if_due()
    if histograms is not None:
        histograms.write()
    learner.close()
    return learner
