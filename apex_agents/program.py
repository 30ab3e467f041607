"""The distributed program: replay servers, one learner, many actors, one evaluator.

Figure 1 of Horgan et al. 2018, with one replay server or several. Nodes talk to these only: actors
add transitions and read parameters, each on one of them, the learner samples transitions from all
and publishes parameters on all, the evaluator reads parameters and reports returns. The learner
decides when the run ends.
"""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import launchpad as lp
import reverb

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.builder import Role, acts_in_learner
from apex_agents.environments import VectorEnvironment
from apex_agents.evaluation.evaluator import run_evaluator
from apex_agents.experiment import Experiment
from apex_agents.learners import (
    actors_wait_for_versions,
    add_gradient_tables,
    make_parameter_server,
    make_parameter_source,
    run_gradient_learner,
)
from apex_agents.learning.learner import ApexLearner
from apex_agents.metrics.loggers import ActorLogger, HistogramLogger, make_learner_logger
from apex_agents.metrics.statistics import StatisticsPoller
from apex_agents.nodes.node import (
    Replays,
    RoleNode,
    await_answer,
    num_restarts,
    stop_program,
)
from apex_agents.nodes.replay import ReplayNode
from apex_agents.replay.connections import PerServer
from apex_agents.run_end import RunEnd, StepReporter
from apex_agents.runs.checkpoints import LearnerCheckpoints
from apex_agents.runs.opening import open_run
from apex_agents.runs.workdir import PARAMETER_SERVER
from apex_agents.waits import WORKS, Waiting, say

_PAUSE_SECONDS, _SHORT_PAUSE_SECONDS = 0.5, 0.02


def make_program(experiment: Experiment) -> lp.Program:
    """Wire an experiment that cloudpickle can pickle, since nodes may run in other processes.

    Returns:
      Program with a group for the replay, and one for each role that the builder lists.

    Raises:
      ValueError: the experiment has no folder to write into, or that folder cannot be used.
    """
    experiment = open_run(experiment)
    program = lp.Program("apex_agents")
    addresses: list[lp.Address] = []
    with program.group("replay"):
        for index in range(experiment.run.num_replays):
            replay = ReplayNode(_make_tables, experiment, index, addresses)
            addresses.append(replay.reverb_address)
            program.add_node(replay)

    replays, run = Replays(addresses, experiment.run_id), experiment.run
    # It writes a checkpoint when it stops.
    learners = [Role("learner", _learn, computes=True, stop_seconds=60.0)]
    if run.num_learners > 1:
        server = learners[0]._replace(name=PARAMETER_SERVER)
        learners = [server, Role("learner", run_gradient_learner, run.num_learners, computes=True)]
    roles = [*learners, Role("evaluator", run_evaluator), Role("actor", _act, run.num_actors)]
    for role in experiment.builder.roles(roles):
        with program.group(role.name):
            for index, name in enumerate(role.node_names()):
                program.add_node(RoleNode(name, role, experiment, replays, index))
    return program


def _make_tables(experiment: Experiment) -> list[reverb.Table]:
    run, spec = experiment.run, experiment.environment_spec()
    tables = experiment.builder.share(run.num_replays).make_replay_tables(spec)
    return add_gradient_tables(tables, experiment.builder, spec, run)


def _act(experiment: Experiment, replays: Replays, index: int) -> None:
    """Act in the environments of one actor until the program stops."""
    (client,) = clients = replays.connect(index % experiment.run.num_replays)
    builder, run, stop = experiment.builder, experiment.run, lp.stop_event()
    environment, env_indices = _make_environment(experiment, index), run.env_indices(index)
    seed = _actor_seed(experiment, index)
    policy = builder.make_policy(environment.spec, env_indices, run.num_envs, seed)
    source = make_parameter_source(actors_wait_for_versions(builder), client, index, stop.is_set)
    adders = builder.make_adders(
        client,
        environment.spec,
        env_indices,
        run.num_envs,
        stop.is_set,
        lambda: source.learner_steps,
    )
    steps = StepReporter(client, index, adders, run)
    # Every actor waits for it, so that a line for each would say nothing.
    the_end = Waiting("the end of the run, which needs no more steps", notice_seconds=math.inf)
    the_counts = Waiting("the replay to count the steps of the actors")

    def find_wait() -> Waiting | None:
        if source.is_run_over or steps.is_limit_reached():
            return the_end if source.is_run_over or steps.knows_counts else the_counts
        return None

    def should_stop() -> bool:
        """Wait while the run needs no more steps; return whether the program stops."""
        while not stop.is_set() and (wait := find_wait()):
            with wait:
                while find_wait() is wait and not stop.wait(_PAUSE_SECONDS):
                    source.refresh()
        return stop.is_set()

    with contextlib.closing(environment), contextlib.closing(steps), contextlib.closing(source):
        await_answer(clients, stop.is_set)
        actor = builder.make_actor(policy, adders, source)
        logger = ActorLogger(experiment, index, environment, policy, adders, source)
        for episodes in run_in_lock_step(environment, actor, should_stop):
            if any(adder.num_steps for adder in adders):
                say(WORKS)
            logger.record(episodes)
        logger.close()


def _actor_seed(experiment: Experiment, index: int) -> int:
    restarts = num_restarts() + experiment.resumed_at.learner_steps
    return experiment.run.node_seed("actor", index, restarts)


def _make_environment(experiment: Experiment, index: int) -> VectorEnvironment:
    """Make the environments of an actor."""
    run = experiment.run
    return experiment.make_vector_environment(
        run.num_envs_per_actor,
        _actor_seed(experiment, index),
        evaluation=False,
        env_indices=run.env_indices(index),
    )


def _act_in_learner(
    experiment: Experiment,
    clients: Sequence[reverb.Client],
    learner: Any,
    is_over: Callable[[], bool],
) -> Iterator[None]:
    """Act with a learner's own worker; each item is a lock-step."""
    environment = _make_environment(experiment, 0)
    adders, run = [learner.rollouts], experiment.run
    steps = PerServer(
        clients,
        lambda client, previous: StepReporter(client, 0, adders, run, previous=previous),
    )

    def should_stop() -> bool:
        while not is_over() and any(reporter.is_limit_reached() for reporter in steps):
            time.sleep(_SHORT_PAUSE_SECONDS)
        return is_over()

    with contextlib.closing(environment), contextlib.closing(steps):
        logger = ActorLogger(experiment, 0, environment, learner.policy, adders, learner)
        with contextlib.closing(logger):
            for episodes in run_in_lock_step(environment, learner.actor, should_stop):
                logger.record(episodes)
                yield


def _learn(experiment: Experiment, replays: Replays, index: int) -> ApexLearner:
    """Learn until the run's end, have the last parameters evaluated, stop the program.

    Returns:
      The learner, which has saved its state and written why it stopped.
    """
    clients = replays.connect(follows=True)
    poller = StatisticsPoller(clients, experiment.data_flow())
    logger = make_learner_logger(experiment, poller)
    builder: Any = experiment.builder
    run = experiment.run
    end: RunEnd  # After the learner.
    make_learner: Callable[..., ApexLearner] = builder.make_learner
    if run.num_learners > 1:
        gradients = replays.connect(0, follows=True)
        make_learner = functools.partial(make_parameter_server, builder, run, gradients)
    acts = acts_in_learner(builder, Role("actor", _act, run.num_actors))
    if acts:
        make_learner = functools.partial(
            builder.make_acting_learner,
            num_envs=run.num_envs,
            policy_seed=_actor_seed(experiment, 0),
        )
    learner = make_learner(
        experiment.environment_spec(),
        clients,
        seed=run.node_seed("learner"),
        logger=logger,
        should_stop=lambda: end.is_due(),
    )
    # After the networks: a connection that is tried before the replay listens pauses for a second.
    end = RunEnd(experiment, clients, poller, lp.stop_event())
    checkpoints = LearnerCheckpoints(experiment, learner)
    histograms = HistogramLogger(experiment, learner)
    first_step = learner.num_steps
    await_answer(clients, lambda: end.is_due(first_step))
    if acts:
        learner.rollouts.lock_steps = _act_in_learner(
            experiment, clients, learner, lambda: end.is_due(learner.num_steps)
        )
    learner.publish()
    while not end.is_due(learner.num_steps):
        learner.step()
        if learner.num_steps > first_step:
            say(WORKS)
        histograms.write_if_due()
        checkpoints.save_if_due()
    logger.write_row()
    histograms.write()
    if end.conclude(learner, checkpoints.save_last):
        stop_program()
    return learner
