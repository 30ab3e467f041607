"""An experiment: what is trained, where, and how far the run has come."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from apex_agents.builder import ApexBuilder, Builder
from apex_agents.config import (
    ExperimentConfig,
    RunConfig,
    other_target,
    without_other_target,
)
from apex_agents.environments import (
    EnvironmentSpec,
    VectorEnvironment,
    find_environment_fn,
    make_vector_environment,
    with_environment_fn,
)
from apex_agents.networks.torso_choice import fit_torso
from apex_agents.registry import make_builder, with_builder_fn, with_torso_fn
from apex_agents.replay.tables import DataFlow
from apex_agents.stopwatch import Stopwatch
from apex_agents.validation import require


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
      make_vector_environment: `(num_envs, seed, *, evaluation, num_rendered, env_indices) ->
        VectorEnvironment`; see `environments.make_vector_environment`.
      run: processes and limits.
      workdir: path of the folder for all files, '' for a run that writes none (`run_local`).
      stopwatch: measures the wall time since the command was started; by default since the
        experiment was made.
      resumed_at: progress of the checkpoint that the run resumes from.
      run_id: suffix of the names of the replay's tables, '' for none.
      task: display name of the environment.
      config: settings that it was made from, None if there are none to write into `workdir`.
      spec: spec of one environment, None while it is unknown.
      notes: sentences on settings that were changed, which the user is told when the run starts.
    """

    builder: Builder
    make_vector_environment: Callable[..., VectorEnvironment]
    run: RunConfig
    workdir: str = ""
    stopwatch: Stopwatch = dataclasses.field(default_factory=Stopwatch)
    resumed_at: Progress = Progress()
    run_id: str = ""
    task: str = ""
    config: ExperimentConfig | None = None
    spec: EnvironmentSpec | None = None
    notes: Sequence[str] = ()

    def with_spec(self, spec: EnvironmentSpec) -> "Experiment":
        """Return the experiment with the spec of one environment, and the torso that fits it.

        Its config, which is recorded, then names this torso in place of 'auto'.
        """
        if self.config is None:
            return dataclasses.replace(self, spec=spec)
        agent = fit_torso(self.config.agent, spec)
        config = dataclasses.replace(self.config, agent=agent)
        return dataclasses.replace(self, spec=spec, config=config)

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
        return self.resumed_at.wall_time_seconds + self.stopwatch.seconds()


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
        cannot be shared out to so many replays or learners.
    """
    if workdir and not workdir.startswith("~"):
        # User code may change the current folder.
        workdir = str(pathlib.Path(workdir).absolute())
    environment = config.environment
    if environment_fn is not None:
        environment = with_environment_fn(environment, environment_fn)
        config = dataclasses.replace(config, environment=environment)
    config.validate()
    if environment_fn is None:
        environment_fn = find_environment_fn(environment)
    agent = config.agent if torso_fn is None else with_torso_fn(config.agent, torso_fn)
    agent = agent if builder_fn is None else with_builder_fn(agent, builder_fn)
    # A run records the number, and resumes with it.
    environment = dataclasses.replace(environment, action_repeat=environment.num_repeats)
    config = dataclasses.replace(config, agent=agent, environment=environment)
    notes: list[str] = []
    if (target := other_target(config)) is not None:
        notes.append(
            f"run.target_return {target:g} is that of {target.task}, and left out; set one of "
            f"{environment.task} to stop there."
        )
        config = without_other_target(config)
    builder = make_builder(agent, torso_fn)
    builder.share(config.run.num_replays)
    _check_learners(builder, config.run)
    return Experiment(
        builder=builder,
        make_vector_environment=functools.partial(
            make_vector_environment, environment, environment_fn=environment_fn
        ),
        run=config.run,
        workdir=workdir,
        task=environment.task,
        config=config,
        notes=notes,
    )


def _check_learners(builder: Builder, run: RunConfig) -> None:
    """Raise a ValueError unless an agent can learn with as many learners as a run has."""
    if run.num_learners == 1:
        return
    config, kind = builder.config, type(builder).__name__

    def require_one(unless: bool, allowed: str) -> None:
        require(unless, "run.num_learners", run.num_learners, allowed)

    require_one(hasattr(config, "replay"), "1: the actors of A2C and A3C compute the gradients")
    makes_none = getattr(type(builder), "make_learner", None) is ApexBuilder.make_learner
    require_one(makes_none, f"1, unless {kind} leaves make_learner to ApexBuilder")
    for name, needed in (("num_sgd_steps_per_step", 1), ("normalize_observations", False)):
        given = getattr(config, name)
        allowed = f"1 while agent.{name} is {given}; for more, set that to {needed}"
        require_one(given == needed, allowed)
