"""Runs an experiment in one process: for debugging, for tests, and to see it learn step by step."""

from collections.abc import Callable
from typing import Any

import reverb

from apex_agents.acting.loop import run_in_lock_step
from apex_agents.experiment import Experiment, end_reason
from apex_agents.learning.learner import ApexLearner
from apex_agents.replay.statistics import ReplayStatistics, read_statistics


def run_local(
    experiment: Experiment, on_episode: Callable[[Any], None] = lambda episode: None
) -> ApexLearner:
    """Run an experiment in this process: acting and learning take turns at a fixed ratio.

    After every lock-step of the environments of all actors, the learner takes as many steps as
    `samples_per_insert` asks for (1 sample per insert if the config leaves it open). Environments,
    exploration and initial parameters are seeded; which transitions the replay server samples is
    not, so that runs are alike but not equal.

    Args:
      experiment: `target_return` is not looked at, since nobody evaluates; give another limit.
      on_episode: called with every finished `Episode` of the acting environments.

    Returns:
      The learner, closed; its variables are the result.

    Raises:
      ValueError: the run has no limit that would end it, or the agent cannot learn in the
        environment.
    """
    builder, run = experiment.builder, experiment.run
    if run.max_learner_steps is None and run.max_actor_steps is None:
        raise ValueError("run_local needs run.max_learner_steps or run.max_actor_steps.")
    replay = builder.config.replay
    environment = experiment.make_vector_environment(
        run.num_envs, run.node_seed("actor"), evaluation=False
    )
    builder.check_environment(environment.spec)
    limiter = reverb.rate_limiters.MinSize(replay.min_size)
    server = reverb.Server(builder.make_replay_tables(environment.spec, limiter))
    client = reverb.Client(f"localhost:{server.port}")
    dataset = builder.make_dataset(client, environment.spec)
    learner = builder.make_learner(environment.spec, dataset, client, run.node_seed("learner"))
    policy = builder.make_policy(
        environment.spec, range(run.num_envs), run.num_envs, run.node_seed("policy")
    )
    adders = [
        builder.make_adder(client, learner_steps_fn=lambda: learner.num_steps)
        for _ in range(run.num_envs)
    ]
    actor = builder.make_actor(policy, adders, variable_source=learner)

    steps_per_transition = (replay.samples_per_insert or 1.0) / builder.config.batch_size
    statistics = ReplayStatistics()
    transitions_before_learning = 0

    def is_over() -> bool:
        return end_reason(run, learner.num_steps, statistics) is not None

    for episodes in run_in_lock_step(environment, actor):
        for episode in episodes:
            on_episode(episode)
        num_transitions = sum(adder.num_transitions for adder in adders)
        if statistics.replay_size < replay.min_size // replay.replicas:
            statistics = read_statistics(client, replay.replicas)
            transitions_before_learning = num_transitions
        statistics = statistics._replace(actor_steps=num_transitions, evaluation=None)
        steps_due = (num_transitions - transitions_before_learning) * steps_per_transition
        while (
            learner.num_steps + builder.config.num_sgd_steps_per_step <= steps_due and not is_over()
        ):
            learner.step()
        if is_over():
            break
    actor.close()
    learner.close()
    environment.close()
    server.stop()
    return learner
