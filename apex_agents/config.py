"""The settings of a run: its processes, its limits, its evaluation and its place on a cluster."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from apex_agents.environments import EnvironmentConfig
from apex_agents.fields import ReadWith
from apex_agents.validation import Probability, Rule, check_config, matching, require

_CUSTOM = re.compile(r"\s*([^\s=,]+)\s*=\s*(\d+(?:\.\d+)?)\s*")


def reaches(mean_return: float, target: float) -> bool:
    """Return whether a mean return is a target, up to what rounding to float32 changes, or more.

    The mean of twenty returns of 0.9 is 0.8999999999999998.
    """
    return mean_return >= target - 1e-6 * abs(target)


class TaskReturn(float):
    """A target return for one task; runs of other tasks ignore it.

    Attributes:
      task: the task, as `environment.task` names it.
    """

    task: str

    def __new__(cls, value: float, task: str = "") -> "TaskReturn":
        self = super().__new__(cls, value)
        self.task = task
        return self


def _is_custom(custom: str) -> bool:
    return all(_CUSTOM.fullmatch(part) for part in custom.split(",") if part.strip())


@dataclasses.dataclass
class EvaluationConfig:
    """The evaluator (Horgan et al. 2018, section 4.1 and appendix B).

    Attributes:
      num_episodes: episodes per evaluation, played in lock-step by as many environments.
      min_period_seconds: least seconds between the starts of two evaluations.
      min_period_learner_steps: least learner steps between the parameters of two evaluations, the
        run's last ones excepted. Unlike seconds, they are as many on any machine.
      max_wait_seconds: seconds for which a run that has reached a limit waits for the evaluation of
        its last parameters, also while the evaluator is restarted; then it ends without it.
      video_period_seconds: least seconds between two videos, each of one episode; None: no videos.
    """

    num_episodes: Annotated[int, Field(ge=1, le=10_000)] = 20
    # Python cannot wait for 300 years.
    min_period_seconds: Annotated[float, Field(ge=0, le=10**9)] = 60.0
    min_period_learner_steps: NonNegativeInt = 0
    max_wait_seconds: PositiveFloat = 3600.0
    video_period_seconds: PositiveFloat | None = None


@dataclasses.dataclass
class NodeResources:
    """Resources that one node reserves on a host of the cluster, which must have them to spare.

    Attributes:
      num_cpus: number of cores.
      num_gpus: number of GPUs.
      custom: further resources that hosts of the cluster declare, such as 'memory_host=1,fast=0.5'.
    """

    num_cpus: NonNegativeFloat = 1.0
    num_gpus: NonNegativeFloat = 0.0
    custom: Annotated[str, matching(_is_custom, "like 'NAME=1,OTHER=0.5'")] = ""

    def amounts(self) -> dict[str, float]:
        """Return the amounts above 0 by the cluster's names of the resources."""
        custom = {name: float(amount) for name, amount in _CUSTOM.findall(self.custom)}
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, **custom}
        return {name: amount for name, amount in amounts.items() if amount}


@dataclasses.dataclass
class ClusterConfig:
    """What the nodes of each role reserve on a cluster; a run on one machine ignores it.

    Attributes:
      replay, learner, evaluator: resources of these nodes; of each learner, if there are several.
      parameter_server: resources of the node that applies the gradients of several learners.
      actor: resources of each actor.
      wait_seconds: seconds for which the run waits for hosts with room for all nodes.
    """

    replay: NodeResources = dataclasses.field(default_factory=NodeResources)
    learner: NodeResources = dataclasses.field(default_factory=NodeResources)
    parameter_server: NodeResources = dataclasses.field(default_factory=NodeResources)
    evaluator: NodeResources = dataclasses.field(default_factory=NodeResources)
    actor: NodeResources = dataclasses.field(default_factory=NodeResources)
    wait_seconds: PositiveFloat = 300.0

    def resources(self, role: str) -> NodeResources:
        """Return the resources of each node of a role, such as 'actor'."""
        return getattr(self, role, NodeResources())


@dataclasses.dataclass
class LearnersConfig:
    """How several learners work together; a run with one learner ignores it.

    Attributes:
      mode: 'synchronous': an update applies the mean of a gradient of each learner, all of the same
        parameters, as one learner with a batch of all does; or 'asynchronous': each gradient is an
        update (Nair et al. 2015, Gorila).
      max_wait_seconds: seconds that a synchronous update waits for further gradients after its
        first one, and that a learner waits for new parameters.
      max_staleness: learner steps since the parameters of a gradient, above which an asynchronous
        update leaves it out (Gorila: a threshold without a number); None: none is left out.
      num_deviations: an asynchronous learner leaves out gradients whose absolute loss is so many
        deviations above the running mean (Gorila: several); None: none is left out.
      bfloat16: whether gradients are sent in bfloat16, half as many bytes as float32; a number
        differs by 0.4 % at most then.
    """

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    max_wait_seconds: Annotated[PositiveFloat, ReadWith("mode", ("synchronous",))] = 10.0
    max_staleness: Annotated[NonNegativeInt | None, ReadWith("mode", ("asynchronous",))] = None
    num_deviations: Annotated[PositiveFloat | None, ReadWith("mode", ("asynchronous",))] = None
    bfloat16: bool = False

    @property
    def wait_seconds(self) -> float | None:
        """Seconds to wait for other learners; None where they are not waited for."""
        return self.max_wait_seconds if self.mode == "synchronous" else None


@dataclasses.dataclass
class RunConfig:
    """The processes of a run, and its limits; the first one reached ends it, None is no limit.

    Attributes:
      seed: seed of everything that can be seeded; sampling in the replay server cannot.
      num_actors: number of actor processes (section 4.1: 360, with one environment each).
      num_envs_per_actor: number of environments that each actor steps in lock-step; each of them is
        what the paper calls an actor, with a separate epsilon or noise.
      num_replays: number of replay servers (the paper: 1), a divisor of `num_actors`. Each of them
        has as many of the actors, and its share of the replay and of every batch.
      num_learners: number of learners (the paper: 1). With several, each computes gradients of
        batches of its own, and a parameter server applies them; see docs/tutorials/learners.md.
      learners: how several learners work together.
      cpu_split: fraction of a machine's cores, at least one, on which its learner runs; other nodes
        run on the remaining ones, or on all if none remain. None: every process runs on all.
      max_learner_steps: limit in learner steps, checked after every call of the learner.
      max_actor_steps: limit in agent steps of all actors together, as far as they were sent.
      max_seconds: limit in wall time, start included; pauses between two commands, and time for
        which the machine sleeps, excluded.
      target_return: limit in the mean unclipped return of an evaluation. The target
        of settings that come with the package holds for their task only.
      checkpoint_period_seconds: seconds between two checkpoints of the learner; also at the end.
      num_checkpoints: number of checkpoints that are kept, the newest ones.
      replay_checkpoint_period_seconds: seconds between two checkpoints of the replay, each of which
        blocks all access to it; also at the end. None: a resumed run starts with an empty one.
      max_restarts: number of times that a node that died is restarted within the window.
      restart_window_seconds: seconds after which a restart no longer counts.
      cluster: resources of the nodes on a cluster.
      evaluation: settings of the evaluator.
    """

    seed: NonNegativeInt = 0
    num_actors: Annotated[int, Field(ge=1, le=10_000)] = 1
    num_envs_per_actor: Annotated[int, Field(ge=1, le=1_000)] = 8
    num_replays: Annotated[int, Field(ge=1, le=100)] = 1
    num_learners: Annotated[int, Field(ge=1, le=100)] = 1
    learners: LearnersConfig = dataclasses.field(default_factory=LearnersConfig)
    cpu_split: Probability | None = None
    max_learner_steps: PositiveInt | None = None
    max_actor_steps: PositiveInt | None = None
    max_seconds: PositiveFloat | None = None
    target_return: float | None = None
    checkpoint_period_seconds: PositiveFloat = 300.0
    num_checkpoints: PositiveInt = 3
    replay_checkpoint_period_seconds: PositiveFloat | None = None
    max_restarts: NonNegativeInt = 5
    restart_window_seconds: PositiveFloat = 600.0
    cluster: ClusterConfig = dataclasses.field(default_factory=ClusterConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        is_divisor = self.num_actors % self.num_replays == 0
        yield "num_replays", is_divisor, f"a divisor of num_actors, {self.num_actors}"

    @property
    def num_envs(self) -> int:
        """Number of environments of all actors together, N in the paper's epsilon ladder."""
        return self.num_actors * self.num_envs_per_actor

    def env_indices(self, actor: int) -> range:
        """Return the indices of an actor's environments among all environments.

        Every `num_actors`-th index, so that each actor, and each group of actors on one replay
        server, spans the epsilon ladder.
        """
        return range(actor, self.num_envs, self.num_actors)

    def node_seed(self, node: str, index: int = 0, num_restarts: int = 0) -> int:
        """Return the seed of one node, different for every node and every number of restarts.

        For actors the learner steps at which a run is resumed count, too. Evaluations have no such
        number: they begin with the same episodes after a restart.
        """
        entropy = [self.seed, *node.encode(), index, num_restarts]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


@dataclasses.dataclass
class ExperimentConfig:
    """All settings of a run, as a file in `configs/` returns them.

    Attributes:
      agent: settings of the algorithm, such as an `ApexDQNConfig`.
      environment: the environment to learn.
      run: processes and limits.
    """

    agent: Any
    environment: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    def validate(self) -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        is_config = dataclasses.is_dataclass(self.agent) and not isinstance(self.agent, type)
        require(is_config, "agent", self.agent, "an agent's config")
        check_config(self)


def other_target(config: ExperimentConfig) -> TaskReturn | None:
    """Return a config's target return if it belongs to a different task, else None."""
    target = config.run.target_return
    if isinstance(target, TaskReturn) and target.task != config.environment.task:
        return target
    return None


def without_other_target(config: ExperimentConfig) -> ExperimentConfig:
    """Return a config without a target return that belongs to a different task."""
    if other_target(config) is None:
        return config
    return dataclasses.replace(config, run=dataclasses.replace(config.run, target_return=None))
