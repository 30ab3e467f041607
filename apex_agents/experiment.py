"""An experiment: what is trained, where, for how long; and its run in one process.

`program.make_program` runs the same experiment in many processes.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from apex_agents.builder import Builder
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec, Lanes
from apex_agents.placement import ClusterConfig
from apex_agents.replay.statistics import ReplayStatistics
from apex_agents.validation import require, require_between, require_positive, require_types


@dataclasses.dataclass
class EvaluationConfig:
    """The evaluator (Horgan et al. 2018, section 4.1 and appendix B).

    Attributes:
      num_episodes: episodes per evaluation, played in lock-step, each by a lane of its own.
      min_period_seconds: seconds from the start of one evaluation to that of the next; longer when
        the evaluation itself takes longer.
      video_period_seconds: seconds between two videos, each of the first lane's episode of an
        evaluation; None makes none.
    """

    num_episodes: int = 20
    min_period_seconds: float = 60.0
    video_period_seconds: float | None = None

    def validate(self, prefix: str = "run.evaluation.") -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        require_between(self, prefix, 1, 10_000, "num_episodes")
        # Python cannot wait for 300 years.
        require_between(self, prefix, 0, 10**9, "min_period_seconds")
        require_positive(self, prefix, "video_period_seconds")


@dataclasses.dataclass
class RunConfig:
    """How many processes, and when the run ends: at whichever limit is reached first.

    Attributes:
      seed: of everything that can be seeded; sampling in the replay server cannot.
      num_actors: actor processes (section 4.1: 360).
      lanes_per_actor: environments that each actor steps in lock-step; a lane is what the paper
        calls an actor, with exploration of its own.
      cpu_split: share of a machine's cores, one at least, to which its learner keeps, and the other
        nodes to the rest; None keeps nobody to any core.
      max_learner_steps: end after this many updates, or those of the call that does the last one.
      max_actor_steps: end after this many transitions of all actors together; None never does.
      target_return: end when an evaluation reaches this mean unclipped return; None never does.
      checkpoint_period_seconds: between two checkpoints of the learner; the end has one, too.
      num_checkpoints: the newest so many are kept.
      replay_checkpoint_period_seconds: seconds between two checkpoints of the replay, during which
        nobody can use it; there is one at the end, too. None saves none: a run that goes on fills
        the replay anew.
      max_restarts: how often a node that died is started again within the window.
      restart_window_seconds: restarts are forgotten after this time.
      cluster: where nodes may be placed, on a cluster.
      evaluation: how the evaluator works.
    """

    seed: int = 0
    num_actors: int = 360
    lanes_per_actor: int = 1
    cpu_split: float | None = None
    max_learner_steps: int | None = None
    max_actor_steps: int | None = None
    target_return: float | None = None
    checkpoint_period_seconds: float = 300.0
    num_checkpoints: int = 3
    replay_checkpoint_period_seconds: float | None = None
    max_restarts: int = 5
    restart_window_seconds: float = 600.0
    cluster: ClusterConfig = dataclasses.field(default_factory=ClusterConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)

    def validate(self, prefix: str = "run.") -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        require_between(self, prefix, 1, 10_000, "num_actors")
        require_between(self, prefix, 1, 1_000, "lanes_per_actor")
        require_between(self, prefix, 0, 1, "cpu_split")
        require_positive(self, prefix, "max_learner_steps", "max_actor_steps")
        require_positive(self, prefix, "checkpoint_period_seconds", "num_checkpoints")
        require_positive(self, prefix, "replay_checkpoint_period_seconds", "restart_window_seconds")
        require(self.max_restarts >= 0, f"{prefix}max_restarts", self.max_restarts, "at least 0")
        require(self.seed >= 0, f"{prefix}seed", self.seed, "at least 0")
        self.cluster.validate(f"{prefix}cluster.")
        self.evaluation.validate(f"{prefix}evaluation.")

    @property
    def num_lanes(self) -> int:
        """Lanes of all actors together, N in the paper's epsilon ladder."""
        return self.num_actors * self.lanes_per_actor

    def node_seed(self, node: str, index: int = 0, num_restarts: int = 0) -> int:
        """Return the seed of one node, different for every node and every start of it."""
        entropy = [self.seed, *node.encode(), index, num_restarts]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)

    def end_reason(self, learner_steps: int, statistics: ReplayStatistics) -> str | None:
        """Say why the run is over, or return None while it is not."""
        evaluation = statistics.evaluation
        target = self.target_return
        if target is not None and evaluation and evaluation.mean_return >= target:
            return f"target return {target:g} reached"
        if self.max_learner_steps is not None and learner_steps >= self.max_learner_steps:
            return f"{self.max_learner_steps} learner steps done"
        if self.max_actor_steps is not None and statistics.actor_steps >= self.max_actor_steps:
            return f"{self.max_actor_steps} actor steps done"
        return None


@dataclasses.dataclass
class ExperimentConfig:
    """What a file in `configs/` returns.

    Attributes:
      agent: the algorithm's settings, such as `ApexDQNConfig`.
      environment: what it learns to play.
      run: processes and limits.
    """

    agent: Any
    environment: EnvironmentConfig
    run: RunConfig

    def validate(self) -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, "")
        is_config = hasattr(self.agent, "validate") and not isinstance(self.agent, type)
        require(is_config, "agent", self.agent, "an agent's config")
        self.agent.validate()
        self.environment.validate()
        self.run.validate()


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
      make_lanes: `(num_lanes, seed, evaluation) -> Lanes`; an evaluator that makes videos adds
        `num_rendered`, see `environments.make_lanes`.
      run: processes and limits.
      workdir: folder for logs and checkpoints, which exists; the same for all processes.
      started_at: when the command was started, seconds since the epoch.
      resumed_at: how far the learner was before this command.
      run_id: goes into the names of the replay's tables, '' for plain ones.
      task: what people call the environment.
    """

    builder: Builder
    make_lanes: Callable[..., Lanes]
    run: RunConfig
    workdir: str
    started_at: float = dataclasses.field(default_factory=lambda: psutil.Process().create_time())
    resumed_at: Progress = dataclasses.field(default_factory=Progress)
    run_id: str = ""
    task: str = ""

    def environment_spec(self) -> EnvironmentSpec:
        """Return the spec of one environment, which is made and closed for that."""
        lanes = self.make_lanes(1, 0, False)
        lanes.close()
        return lanes.spec

    def elapsed_seconds(self) -> float:
        """Return the wall time since the run was started, less that for which it was stopped."""
        return self.resumed_at.wall_time_seconds + time.time() - self.started_at
