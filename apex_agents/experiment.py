"""An experiment: what is trained, where, and how far it is."""

import dataclasses
import time
from collections.abc import Callable

import psutil

from apex_agents.builder import Builder
from apex_agents.config import RunConfig
from apex_agents.environments import EnvironmentSpec, VectorEnvironment
from apex_agents.replay.statistics import ReplayStatistics


@dataclasses.dataclass
class Progress:
    """How far a run is, or was when it was stopped.

    Attributes:
      learner_steps: updates done.
      wall_time_seconds: since the run was started, without the time for which it was stopped.
    """

    learner_steps: int = 0
    wall_time_seconds: float = 0.0


@dataclasses.dataclass
class Experiment:
    """All that a program needs to run.

    Attributes:
      builder: makes the agent's parts.
      make_vector_environment: `(num_envs, seed, evaluation) -> Environments`; an evaluator that
        makes videos adds `num_rendered`, see `environments.make_vector_environment`.
      run: processes and limits.
      workdir: folder for logs and checkpoints, which exists; the same for all processes.
      started_at: when the command was started, seconds since the epoch.
      resumed_at: how far the learner was before this command.
      run_id: goes into the names of the replay's tables, '' for plain ones.
      task: what people call the environment.
    """

    builder: Builder
    make_vector_environment: Callable[..., VectorEnvironment]
    run: RunConfig
    workdir: str
    started_at: float = dataclasses.field(default_factory=lambda: psutil.Process().create_time())
    resumed_at: Progress = dataclasses.field(default_factory=Progress)
    run_id: str = ""
    task: str = ""

    def environment_spec(self) -> EnvironmentSpec:
        """Return the spec of one environment, which is made and closed for that."""
        environment = self.make_vector_environment(1, 0, evaluation=False)
        environment.close()
        return environment.spec

    def elapsed_seconds(self) -> float:
        """Return the wall time since the run was started, less that for which it was stopped."""
        return self.resumed_at.wall_time_seconds + time.time() - self.started_at


def end_reason(run: RunConfig, learner_steps: int, statistics: ReplayStatistics) -> str | None:
    """Say why the run is over, or return None while it is not."""
    evaluation = statistics.evaluation
    target = run.target_return
    if target is not None and evaluation and evaluation.mean_return >= target:
        return f"target return {target:g} reached"
    if run.max_learner_steps is not None and learner_steps >= run.max_learner_steps:
        return f"{run.max_learner_steps} learner steps done"
    if run.max_actor_steps is not None and statistics.actor_steps >= run.max_actor_steps:
        return f"{run.max_actor_steps} actor steps done"
    return None
