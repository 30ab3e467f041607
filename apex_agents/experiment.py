"""An experiment: what is trained, where, and how far the run has come."""

import dataclasses
import functools
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from dm_env import specs

from apex_agents.builder import Builder
from apex_agents.config import ExperimentConfig, RunConfig, reaches
from apex_agents.environments import (
    EnvironmentSpec,
    VectorEnvironment,
    find_environment_fn,
    knows_evaluations,
    make_vector_environment,
    with_environment_fn,
)
from apex_agents.registry import make_builder, with_builder_fn, with_torso_fn
from apex_agents.replay.flow import DataFlow
from apex_agents.replay.statistics import ReplayStatistics


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run had come when a checkpoint was written.

    Attributes:
      learner_steps: number of updates.
      wall_time_seconds: time since the run was started, pauses between two commands excluded.
    """

    learner_steps: int = 0
    wall_time_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that a program needs to run.

    Attributes:
      builder: maker of the agent's parts.
      make_vector_environment: `(num_envs, seed, *, evaluation, num_rendered) ->
        VectorEnvironment`; see `environments.make_vector_environment`.
      run: processes and limits.
      workdir: path of the folder for all files, '' for a run that writes none (`run_local`).
      started_at: time from which the wall time counts, in seconds since the epoch; by default that
        at which the experiment is made.
      resumed_at: progress of the checkpoint that the run resumes from.
      run_id: suffix of the names of the replay's tables, '' for none.
      task: display name of the environment.
      config: settings that it was made from, None if there are none to write into `workdir`.
      spec: spec of one environment, None while it is unknown.
    """

    builder: Builder
    make_vector_environment: Callable[..., VectorEnvironment]
    run: RunConfig
    workdir: str = ""
    started_at: float = dataclasses.field(default_factory=time.time)
    resumed_at: Progress = Progress()
    run_id: str = ""
    task: str = ""
    config: ExperimentConfig | None = None
    spec: EnvironmentSpec | None = None

    def environment_spec(self) -> EnvironmentSpec:
        """Return the spec of one environment, which is made and closed if it is unknown."""
        if self.spec is not None:
            return self.spec
        environment = self.make_vector_environment(1, 0, evaluation=False)
        environment.close()
        return environment.spec

    def data_flow(self) -> DataFlow:
        """Return how the transitions of the run's actors reach its learner."""
        return self.builder.data_flow(self.run.num_envs_per_actor)

    def elapsed_seconds(self) -> float:
        """Return the wall time since the run was started, pauses between two commands excluded."""
        before = self.resumed_at.wall_time_seconds - self.started_at
        return before + time.monotonic() + _clock_offset(self.started_at)


@functools.cache
def _clock_offset(started_at: float) -> float:
    """Return the difference to a clock that never jumps, as it is first seen in this run."""
    return time.time() - time.monotonic()


def make_experiment(
    config: ExperimentConfig,
    *,
    environment_fn: Callable[..., Any] | None = None,
    torso_fn: Callable[..., Any] | None = None,
    builder_fn: Callable[..., Builder] | None = None,
    workdir: str = "",
) -> Experiment:
    """Make the experiment of a config.

    Args:
      config: settings of the agent, the environment and the run.
      environment_fn: maker of one environment, a `gymnasium.Env` or `dm_env.Environment`, in place
        of the config's suite and task; called with the keyword arguments `environment.kwargs`.
      torso_fn: maker of the networks' torsos in place of those that the config names; called with
        the environment's spec and the agent's config.
      builder_fn: maker of the agent's builder, such as a subclass of `ApexDQNBuilder`, in place of
        the one that `config.agent` names; called with that config and `torso_fn`.
      workdir: folder for logs and checkpoints, which `make_program` needs.

    Raises:
      ValueError: a field has an invalid value, or no known agent has such settings, or its data
        cannot be shared out to so many replays.
    """
    environment = config.environment
    if environment_fn is not None:
        environment = with_environment_fn(environment, environment_fn)
        config = dataclasses.replace(config, environment=environment)
    config.validate()
    if environment_fn is None:
        environment_fn = find_environment_fn(environment)
    agent = config.agent if torso_fn is None else with_torso_fn(config.agent, torso_fn)
    agent = agent if builder_fn is None else with_builder_fn(agent, builder_fn)
    config = dataclasses.replace(config, agent=agent, environment=environment)
    builder = make_builder(agent, torso_fn)
    if config.run.num_replays > 1:
        builder.share(config.run.num_replays)
    return Experiment(
        builder=builder,
        make_vector_environment=functools.partial(
            make_vector_environment, environment, environment_fn=environment_fn
        ),
        run=config.run,
        workdir=workdir,
        task=environment.task,
        config=config,
    )


def check_environment(experiment: Experiment) -> EnvironmentSpec:
    """Return the environment's spec.

    Raises:
      ValueError: the agent cannot learn in it, or evaluations have another one.
    """
    with warnings.catch_warnings():  # The nodes make it too, and their warnings are logged.
        warnings.simplefilter("ignore")
        environment = experiment.make_vector_environment(1, 0, evaluation=False)
    level = logging.root.manager.disable
    try:
        experiment.builder.check_environment(environment.spec)
        logging.disable(logging.WARNING)  # The error of the last attempt says it all.
        _reset(environment, experiment.task)
    finally:
        logging.disable(level)
        environment.close()
    config = experiment.config and experiment.config.environment
    if config and knows_evaluations(config):
        _check_evaluation(experiment, environment.spec)
    return environment.spec


def check_own_networks(experiment: Experiment, spec: EnvironmentSpec) -> None:
    """Let networks of the user, if there are any, act once, before a node does.

    Raises:
      ValueError: they cannot, or the value of an observation depends on the others of its batch.
    """
    names = vars(experiment.config.agent).values() if experiment.config else ()
    if not any(isinstance(name, str) and ":" in name for name in names):
        return
    observed: Any = spec.observations
    low, high = (0, 256) if observed.dtype == np.uint8 else (-1, 1)
    drawn = np.random.default_rng(0).uniform(low, high, (3, *observed.shape))
    if isinstance(observed, specs.BoundedArray):  # Those of the control suite have no bounds.
        drawn = drawn.clip(observed.minimum, observed.maximum)
    observations = drawn.astype(observed.dtype)
    try:
        policy = experiment.builder.make_policy(spec, range(2), 2, 0)
        values = [float(policy(observations[i]).value[0]) for i in ([0, 1], [0, 1], [0, 2])]
    except Exception as error:  # The user's code may raise anything.
        line = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"The agent's networks cannot act: {type(error).__name__}: {line}"
        ) from error
    # Those of networks with noise of their own differ in any case.
    if values[0] == values[1] and not np.isclose(values[0], values[2], rtol=1e-4, atol=0):
        raise ValueError(
            "The agent's networks give an observation another value when the others of its batch "
            "change, as normalization over a batch does. Learner, actors and evaluations have "
            "batches of other sizes; use layer normalization."
        )


def _check_evaluation(experiment: Experiment, spec: EnvironmentSpec) -> None:
    environment = experiment.make_vector_environment(1, 0, evaluation=True)
    environment.close()
    for name in ("observations", "actions"):
        trained, evaluated = (_describe(getattr(each, name)) for each in (spec, environment.spec))
        if trained != evaluated:
            raise ValueError(
                f"In evaluations {name} are {evaluated}, in training they are {trained}; the agent "
                "needs the same in both."
            )


def _describe(spec: Any) -> str:
    if hasattr(spec, "num_values"):
        return f"discrete, {spec.num_values} of them"
    # Networks divide bytes by their maximum.
    most = f" up to {np.max(spec.maximum)}" if spec.dtype == np.uint8 else ""
    return f"{spec.dtype} {list(spec.shape)}{most}"


def _reset(environment: VectorEnvironment, task: str) -> None:
    try:
        environment.reset()
    except Exception as error:  # The code of an environment may raise anything.
        name = type(error).__name__
        raise ValueError(f"{task} fails when it is reset: {name}: {error}") from error


def check_limits(run: RunConfig, flow: DataFlow) -> None:
    """Raise a ValueError if the run ends before the replay holds what the learner starts at."""
    limit = run.max_actor_steps
    if limit is not None and limit < flow.min_size:
        raise ValueError(
            f"run.max_actor_steps is {limit}, but the learner starts at {flow.min_size_field}, "
            f"{flow.min_size} transitions; raise the one or lower the other."
        )


def end_reason(
    run: RunConfig, learner_steps: int, statistics: ReplayStatistics, seconds: float = 0.0
) -> str | None:
    """Return why a run is over after steps, evaluations and wall time, None while it is not."""
    evaluation, target = statistics.evaluation, run.target_return
    if target is not None and evaluation and reaches(float(evaluation.mean_return), target):
        return f"target return {target:g} reached"
    if run.max_learner_steps is not None and learner_steps >= run.max_learner_steps:
        return f"{run.max_learner_steps} learner steps done"
    if run.max_actor_steps is not None and statistics.actor_steps >= run.max_actor_steps:
        return f"{run.max_actor_steps} actor steps done"
    if run.max_seconds is not None and seconds >= run.max_seconds:
        return f"{run.max_seconds:g} seconds passed"
    return None
