"""The settings of a run: processes, limits, evaluation, placement on a cluster."""

import dataclasses
import re
from typing import Any

import numpy as np

from apex_agents.environments import EnvironmentConfig
from apex_agents.validation import require, require_between, require_positive, require_types

_CUSTOM = re.compile(r"\s*([^\s=,]+)\s*=\s*(\d+(?:\.\d+)?)\s*")


@dataclasses.dataclass
class HostShare:
    """What one node takes of its host; a host without that much left does not get it.

    Attributes:
      num_cpus: cores.
      num_gpus: GPUs.
      custom: further resources that the hosts of the cluster declare, as 'NAME=AMOUNT,...'; such as
        'memory_host=1' for a node that belongs on a host with much memory.
    """

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    custom: str = ""

    def validate(self, prefix: str) -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        require(self.num_cpus >= 0, f"{prefix}num_cpus", self.num_cpus, "at least 0")
        require(self.num_gpus >= 0, f"{prefix}num_gpus", self.num_gpus, "at least 0")
        parts = [part for part in self.custom.split(",") if part.strip()]
        is_valid = all(_CUSTOM.fullmatch(part) for part in parts)
        require(is_valid, f"{prefix}custom", self.custom, "like 'NAME=1,OTHER=0.5'")

    def resources(self) -> dict[str, float]:
        """Return the amounts by name, those of 0 left out."""
        custom = {name: float(amount) for name, amount in _CUSTOM.findall(self.custom)}
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, **custom}
        return {name: amount for name, amount in amounts.items() if amount}


@dataclasses.dataclass
class ClusterConfig:
    """Where the nodes of each group may be placed on a cluster; one machine ignores it.

    Attributes:
      replay: for the replay.
      learner: for the learner.
      evaluator: for the evaluator.
      actor: for each actor.
      wait_seconds: how long the run waits for hosts with room for all nodes before it gives up.
    """

    replay: HostShare = dataclasses.field(default_factory=HostShare)
    learner: HostShare = dataclasses.field(default_factory=HostShare)
    evaluator: HostShare = dataclasses.field(default_factory=HostShare)
    actor: HostShare = dataclasses.field(default_factory=HostShare)
    wait_seconds: float = 300.0

    def validate(self, prefix: str) -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        require_positive(self, prefix, "wait_seconds")
        for group in ("replay", "learner", "evaluator", "actor"):
            self.share(group).validate(f"{prefix}{group}.")

    def share(self, group: str) -> HostShare:
        """Return what a node of this group takes."""
        return getattr(self, group)


@dataclasses.dataclass
class EvaluationConfig:
    """The evaluator (Horgan et al. 2018, section 4.1 and appendix B).

    Attributes:
      num_episodes: episodes per evaluation, played in lock-step, each by an environment of its own.
      min_period_seconds: seconds from the start of one evaluation to that of the next; longer when
        the evaluation itself takes longer.
      video_period_seconds: seconds between two videos, each of the first environment's episode of
        an evaluation; None makes none.
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
      num_envs_per_actor: environments that each actor steps in lock-step; an environment is what
        the paper calls an actor, with exploration of its own.
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
    num_envs_per_actor: int = 1
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
        require_between(self, prefix, 1, 1_000, "num_envs_per_actor")
        require_between(self, prefix, 0, 1, "cpu_split")
        require_positive(self, prefix, "max_learner_steps", "max_actor_steps")
        require_positive(self, prefix, "checkpoint_period_seconds", "num_checkpoints")
        require_positive(self, prefix, "replay_checkpoint_period_seconds", "restart_window_seconds")
        require(self.max_restarts >= 0, f"{prefix}max_restarts", self.max_restarts, "at least 0")
        require(self.seed >= 0, f"{prefix}seed", self.seed, "at least 0")
        self.cluster.validate(f"{prefix}cluster.")
        self.evaluation.validate(f"{prefix}evaluation.")

    @property
    def num_envs(self) -> int:
        """Environments of all actors together, N in the paper's epsilon ladder."""
        return self.num_actors * self.num_envs_per_actor

    def node_seed(self, node: str, index: int = 0, num_restarts: int = 0) -> int:
        """Return the seed of one node, different for every node and every start of it."""
        entropy = [self.seed, *node.encode(), index, num_restarts]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


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
