"""Runs an experiment in one process: for debugging, for tests, and to see it learn step by step."""

from collections.abc import Callable
from typing import Any

import reverb

from apex_agents.acting.loop import run_in_lock_step
from apex_agents.experiment import Experiment, check_limits, end_reason
from apex_agents.learning.learner import ApexLearner
from apex_agents.replay.statistics import ReplayStatistics, read_statistics


def run_local(
    experiment: Experiment, on_episode: Callable[[Any], None] = lambda episode: None
) -> ApexLearner:
    """Run an experiment in this process: acting and learning take turns at a fixed ratio.

    After every lock-step of the environments of all actors, the learner takes as many steps as
    `samples_per_insert` asks for (1 sample per insert if the config leaves it open). All is seeded
    but the sampling of the replay server, so that runs are alike but not equal.

    Args:
      experiment: agent, environments and limits; `target_return` needs an evaluator and is ignored.
      on_episode: called with every finished `Episode` of the acting environments.

    Returns:
      The learner, closed; its variables are the result.

    Raises:
      ValueError: the run has no limit, or one below the replay's least size, or the agent cannot
        learn in the environment.
    """
    builder, run = experiment.builder, experiment.run
    if run.max_learner_steps is None and run.max_actor_steps is None:
        raise ValueError("run_local needs run.max_learner_steps or run.max_actor_steps.")
    check_limits(experiment)
    environment = experiment.make_vector_environment(
        run.num_envs, run.node_seed("actor"), evaluation=False
    )
    spec = environment.spec
    builder.check_environment(spec)

    limiter = reverb.rate_limiters.MinSize(builder.config.replay.min_size)
    server = reverb.Server(builder.make_replay_tables(spec, limiter))
    client = reverb.Client(f"localhost:{server.port}")
    dataset = builder.make_dataset(client, spec)
    learner = builder.make_learner(spec, dataset, client, run.node_seed("learner"))
    num_envs = run.num_envs
    adders = [
        builder.make_adder(client, learner_steps_fn=lambda: learner.num_steps)
        for _ in range(num_envs)
    ]
    policy = builder.make_policy(spec, range(num_envs), num_envs, run.node_seed("policy"))
    actor = builder.make_actor(policy, adders, variable_source=learner)

    schedule = _Schedule(client, builder.config)
    statistics = ReplayStatistics()

    def is_over() -> bool:
        return end_reason(run, learner.num_steps, statistics) is not None

    for episodes in run_in_lock_step(environment, actor, is_over):
        for episode in episodes:
            on_episode(episode)
        statistics = ReplayStatistics(actor_steps=sum(adder.num_transitions for adder in adders))
        while not is_over() and schedule.is_due(learner.num_steps, statistics.actor_steps):
            learner.step()
    actor.close()
    learner.close()
    environment.close()
    server.stop()
    return learner


class _Schedule:
    """Decides when the learner steps: in a fixed ratio to the transitions, once it can learn."""

    def __init__(self, client: reverb.Client, config: Any):
        self._client = client
        self._replay = config.replay
        self._num_updates = config.num_sgd_steps_per_step
        self._steps_per_transition = (config.replay.samples_per_insert or 1.0) / config.batch_size
        self._first_transition: int | None = None

    def is_due(self, learner_steps: int, num_transitions: int) -> bool:
        """Return whether the next call of `learner.step` is due, after so many transitions."""
        if self._first_transition is None:
            statistics = read_statistics(self._client, self._replay.replicas)
            if statistics.replay_size * self._replay.replicas < self._replay.min_size:
                return False
            self._first_transition = num_transitions
        due = (num_transitions - self._first_transition) * self._steps_per_transition
        return learner_steps + self._num_updates <= due
