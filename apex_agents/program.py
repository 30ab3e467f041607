"""The distributed program: replay servers, one learner, many actors, one evaluator.

Figure 1 of Horgan et al. 2018, with one replay server or several. Nodes talk to these only: actors
add transitions and read parameters, each on one of them, the learner samples transitions from all
and publishes parameters on all, the evaluator reads parameters and reports returns. The learner
decides when the run ends.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import launchpad as lp
import reverb

from apex_agents.acting.loop import run_in_lock_step
from apex_agents.builder import Learner
from apex_agents.evaluation.evaluator import run_evaluator
from apex_agents.evaluation.run_end import RunEnd, await_evaluation
from apex_agents.experiment import Experiment, end_reason
from apex_agents.metrics.learner_loggers import HistogramLogger, LearnerLogger
from apex_agents.metrics.loggers import ActorLogger
from apex_agents.metrics.summary import remove_summary, write_summary
from apex_agents.nodes.answers import await_answer
from apex_agents.nodes.node import (
    ClientNode,
    NodeRole,
    ReplayClients,
    Replays,
    num_restarts,
    report_ready,
    stop_program,
)
from apex_agents.nodes.replay import ReplayNode
from apex_agents.nodes.step_limit import StepLimit
from apex_agents.replay.parameters import ParameterSource
from apex_agents.replay.statistics import StatisticsPoller
from apex_agents.runs.checkpoints import LearnerCheckpoints
from apex_agents.runs.opening import open_run

_PAUSE_SECONDS = 0.5
_LEARNER = NodeRole(computes=True, stop_seconds=60.0)  # It writes a checkpoint when it stops.


def make_program(experiment: Experiment) -> lp.Program:
    """Wire an experiment that cloudpickle can pickle, since nodes may run in other processes.

    Returns:
      Program with the groups `replay`, `learner`, `evaluator` and `actor`.

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

    def add_node(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        replays = Replays(addresses, experiment.run_id, **kwargs)
        role = _LEARNER if function is _learn else NodeRole()
        program.add_node(ClientNode(name, function, experiment, replays, *args, role=role))

    with program.group("learner"):
        add_node("learner", _learn, follows=True)
    with program.group("evaluator"):
        add_node("evaluator", run_evaluator)
    with program.group("actor"):
        for i in range(experiment.run.num_actors):
            add_node(f"actor_{i}", _act, i, index=i % experiment.run.num_replays)
    return program


def _make_tables(experiment: Experiment) -> list[reverb.Table]:
    builder = experiment.builder.share(experiment.run.num_replays)
    return builder.make_replay_tables(experiment.environment_spec())


def _act(experiment: Experiment, clients: ReplayClients, index: int) -> None:
    """Act in the environments of one actor until the program stops."""
    (client,) = clients
    builder, run = experiment.builder, experiment.run
    stop = lp.stop_event()
    seed = run.node_seed("actor", index, num_restarts() + experiment.resumed_at.learner_steps)
    env_indices = run.env_indices(index)
    environment = experiment.make_vector_environment(
        run.num_envs_per_actor, seed, evaluation=False, env_indices=env_indices
    )
    policy = builder.make_policy(environment.spec, env_indices, run.num_envs, seed)
    source = ParameterSource(client, stop.is_set)
    adders = builder.make_adders(
        client, env_indices, run.num_envs, stop.is_set, lambda: source.learner_steps
    )
    limit = StepLimit(client, adders, run, experiment.data_flow())

    def should_stop() -> bool:
        """Wait while the run needs no more transitions; return whether the program stops."""
        while not stop.is_set() and (source.is_run_over or limit.is_reached()):
            stop.wait(_PAUSE_SECONDS)
            source.refresh()
        return stop.is_set()

    with contextlib.closing(environment):
        await_answer(clients, stop.is_set)
        actor = builder.make_actor(policy, adders, source)
        logger = ActorLogger(experiment, index, environment, policy, adders, source)
        for episodes in run_in_lock_step(environment, actor, should_stop):
            if any(adder.num_transitions for adder in adders):
                report_ready()
            logger.record(episodes)
        logger.close()


def _learn(experiment: Experiment, clients: ReplayClients) -> Learner:
    """Learn until the run's end, have the last parameters evaluated, stop the program.

    Returns:
      The learner, which has saved its state and written why it stopped.
    """
    remove_summary(experiment)
    builder, run = experiment.builder, experiment.run
    should_stop = lp.stop_event().is_set
    poller = StatisticsPoller(clients, experiment.data_flow())

    def find_end(learner_steps: int) -> str | None:
        return end_reason(run, learner_steps, poller.latest, experiment.elapsed_seconds())

    spec = experiment.environment_spec()
    logger = LearnerLogger(experiment, poller)
    shared = builder.share(run.num_replays)
    datasets = [shared.make_dataset(client, spec) for client in clients]
    learner = builder.make_learner(
        spec,
        datasets if run.num_replays > 1 else datasets[0],
        clients if run.num_replays > 1 else clients[0],
        seed=run.node_seed("learner"),
        logger=logger,
        should_stop=lambda: should_stop() or clients.have_moved() or find_end(0) is not None,
    )

    end = RunEnd(clients, should_stop)

    def follow_replays() -> None:
        """Reconnect with replays that have moved."""
        for index in clients.follow():
            client = clients[index]
            learner.reconnect(index, client, shared.make_dataset(client, spec))
            poller.reconnect(index, client)
            end.follow(index)

    checkpoints = LearnerCheckpoints(experiment, learner)
    histograms = HistogramLogger(experiment)
    learner.publish()
    first_step = learner.num_steps
    reason = find_end(learner.num_steps)
    await_answer(
        clients,
        lambda: should_stop() or clients.have_moved() or find_end(learner.num_steps) is not None,
    )
    while reason is None and not should_stop():
        follow_replays()
        learner.step()
        if learner.num_steps > first_step:
            report_ready()
            histograms.write_if_due(learner)
        reason = find_end(learner.num_steps)
        checkpoints.save_if_due()
    if learner.num_steps > first_step:
        logger.write_row()
        histograms.write(learner)
    # Saving comes first: the replay server may be stopping, and calls to it may block.
    is_saved = checkpoints.save_last()
    if reason is not None and learner.num_steps:
        learner.publish()
        end.announce(learner.num_steps)
        try:
            is_evaluated = await_evaluation(run, poller, learner.num_steps, follow_replays)
            reason = (find_end(learner.num_steps) or reason) if is_evaluated else None
        except TimeoutError as error:
            reason = f"{reason}, but {error}"
        is_saved = is_saved or checkpoints.save_last()  # The disk may have room again.
    write_summary(experiment, reason, is_saved, learner.num_steps, poller.latest.actor_steps)
    learner.close()
    poller.close()
    end.close()
    if reason is not None:
        stop_program()
    return learner
