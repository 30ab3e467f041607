"""Runs an experiment in one process: for debugging, for tests, and to see it learn step by step."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import reverb

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.builder import Adder, Role, acts_in_learner
from apex_agents.checks import check_limits
from apex_agents.environments import VectorEnvironment
from apex_agents.experiment import Experiment
from apex_agents.learning.learner import ApexLearner
from apex_agents.metrics.statistics import read_statistics
from apex_agents.process_state import restoring_process
from apex_agents.replay.tables import DataFlow, serve
from apex_agents.run_end import end_reason
from apex_agents.validation import require


@restoring_process()
def run_local(
    experiment: Experiment, on_episode: Callable[[Any], None] = lambda episode: None
) -> ApexLearner:
    """Run an experiment in this process: acting and learning take turns at a fixed ratio.

    One actor has the environments of all actors, and there is one replay. After every lock-step,
    the learner takes as many steps as are due, as many as `samples_per_insert` asks for (1 sample
    per insert if the config leaves it open). An actor-critic's learner acts itself, a step for each
    rollout. All is seeded but the sampling of the replay server, so that runs of Ape-X are
    alike but not equal.

    Args:
      experiment: agent, environments and limits; `target_return` needs an evaluator and is ignored.
      on_episode: called with every finished `Episode` of the acting environments.

    Returns:
      The learner, closed; its variables are the result.

    Raises:
      ValueError: the run has no limit, or one below the replay's least size, or several learners,
        or the agent cannot learn in the environment.
    """
    builder, run = experiment.builder, experiment.run
    started_at = time.monotonic()
    if run.max_learner_steps is run.max_actor_steps is run.max_seconds is None:
        raise ValueError(
            "run_local needs run.max_learner_steps, run.max_actor_steps or run.max_seconds."
        )
    require(run.num_learners == 1, "run.num_learners", run.num_learners, "1 for run_local")
    check_limits(run, builder.data_flow(run.num_envs))
    environment = experiment.make_vector_environment(
        run.num_envs, run.node_seed("actor"), evaluation=False
    )
    with contextlib.closing(environment):
        builder.check_environment(environment.spec)
        acts = acts_in_learner(builder, Role("actor", run_in_lock_step, 1))
        run_it = _run_acting_learner if acts else _run
        return run_it(experiment, environment, started_at, on_episode)


def _run_acting_learner(
    experiment: Experiment,
    environment: VectorEnvironment,
    started_at: float,
    on_episode: Callable[[Any], None],
) -> ApexLearner:
    builder: Any = experiment.builder
    run, spec = experiment.run, environment.spec
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(serve(builder.make_replay_tables(spec)))
        seeds = run.node_seed("learner"), run.node_seed("policy")
        learner = builder.make_acting_learner(spec, client, run.num_envs, *seeds)
        stack.callback(learner.close)

        def is_over() -> bool:
            seconds, steps = time.monotonic() - started_at, learner.rollouts.num_steps
            return end_reason(run, learner.num_steps, steps, seconds=seconds) is not None

        def act() -> Iterator[None]:
            for episodes in run_in_lock_step(environment, learner.actor, is_over):
                for episode in episodes:
                    on_episode(episode)
                yield

        learner.rollouts.lock_steps = act()
        while not is_over():
            learner.step()
    return learner


def _run(
    experiment: Experiment,
    environment: VectorEnvironment,
    started_at: float,
    on_episode: Callable[[Any], None],
) -> ApexLearner:
    builder, run, spec = experiment.builder, experiment.run, environment.spec
    flow = builder.data_flow(run.num_envs)
    # Acting and learning take turns here: neither may wait for the other.
    limiter = reverb.rate_limiters.MinSize(flow.min_size * flow.replicas)
    tables = [
        table.replace(rate_limiter=limiter) if table.name == flow.table else table
        for table in builder.make_replay_tables(spec)
    ]
    has_failed = False
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(serve(tables))
        learner = builder.make_learner(
            spec, client, run.node_seed("learner"), should_stop=lambda: has_failed
        )
        stack.callback(learner.close)
        env_indices = range(run.num_envs)
        adders = builder.make_adders(
            client,
            spec,
            env_indices,
            run.num_envs,
            should_stop=lambda: has_failed,
            learner_steps_fn=lambda: learner.num_steps,
        )
        policy = builder.make_policy(spec, env_indices, run.num_envs, run.node_seed("policy"))
        actor = builder.make_actor(policy, adders, variable_source=learner)
        stack.callback(actor.close)

        schedule = _Schedule(client, flow, adders)

        def is_over(actor_steps: int = 0) -> bool:
            seconds = time.monotonic() - started_at
            reason = end_reason(run, learner.num_steps, actor_steps, seconds=seconds)
            return reason is not None

        def has_acted_enough() -> bool:
            return is_over(sum(adder.num_steps for adder in adders))

        try:
            acting = run_in_lock_step(environment, actor, has_acted_enough, wait=True)
            for episodes in acting:
                for episode in episodes:
                    on_episode(episode)
                # The last items are learned from, too.
                while schedule.is_due(learner.num_steps):
                    if is_over():
                        break
                    learner.step()
        except BaseException:  # What is open is closed without sending what is left.
            has_failed = True
            raise
    return learner


class _Schedule:
    """Decides when the learner steps: in a fixed ratio to the items sent, once it can learn."""

    def __init__(self, client: reverb.Client, flow: DataFlow, adders: Sequence[Adder]):
        self._client = client
        self._flow = flow
        self._adders = adders
        self._first_item: int | None = None

    def is_due(self, learner_steps: int) -> bool:
        """Return whether the next call of `learner.step` is due."""
        num_items = sum(adder.num_items for adder in self._adders)
        if self._first_item is None:
            if num_items < self._flow.min_size:
                return False
            for adder in self._adders:
                adder.flush()
            if read_statistics(self._client, self._flow).replay_size < self._flow.min_size:
                return False
            self._first_item = num_items - 1
        due = (num_items - self._first_item) / self._flow.items_per_step
        return learner_steps + self._flow.steps_per_call <= due
