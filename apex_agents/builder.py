"""The seam between a program and an algorithm: which parts an agent has."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import reverb
import tensorflow as tf
from acme import core
from acme.utils import loggers

from apex_agents.acting.policy import Policy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.learner import ApexLearner
from apex_agents.replay.flow import DataFlow


class Role(NamedTuple):
    """A kind of nodes: how many a run has, what they do, what they may use.

    A node that computes may use GPUs and the learner's cores, with a thread on each of them; any
    other sees no GPU and uses one thread.
    """

    name: str  # Also that of its resources on a cluster, in `run.cluster`.
    function: Callable[..., Any]  # `(experiment, replays, index)`, returns when the program stops.
    num_nodes: int | None = None  # None: one node, without a number in its name.
    computes: bool = False
    stop_seconds: float = 15.0  # Time that a node may take to stop.
    stops_last: bool = False  # Whether its nodes run until all others have stopped.

    def node_names(self) -> list[str]:
        """Return the names of its nodes, which are those of their files, too."""
        if self.num_nodes is None:
            return [self.name]
        return [f"{self.name}_{index}" for index in range(self.num_nodes)]


class Adder(Protocol):
    """Sends to the replay server what an actor has done in one or in several environments.

    Attributes:
      num_transitions: transitions sent so far.
      num_not_finite: those left out because a number in them was NaN or infinite.
    """

    num_transitions: int
    num_not_finite: int

    def flush(self) -> None:
        """Send all that is complete, as soon as the server accepts it."""

    def close(self) -> None:
        """Send all that is complete, unless the program stops, and end."""


class Builder(Protocol):
    """Makes the parts of an agent; `program` and `run_local` put them together.

    Attributes:
      config: settings of the agent.
    """

    @property
    def config(self) -> Any: ...

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Check that this agent, with its config, can learn in an environment.

        Raises:
          ValueError: it cannot; the message says why.
        """

    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> Any:
        """Build what the agent learns: a module, or a named tuple of modules, in float32.

        The variables exist, and all of them have different names.
        """

    def share(self, num_replays: int) -> "Builder":
        """Return the builder of the tables and the dataset of each of so many replay servers.

        Raises:
          ValueError: the agent's data cannot be shared out to them.
        """

    def roles(self, roles: Sequence[Role]) -> Sequence[Role]:
        """List the roles of a run's nodes, given the program's learner, evaluator and actor."""

    def data_flow(self, num_envs_per_actor: int) -> DataFlow:
        """Return how transitions reach the learner of a run with so many environments per actor."""

    def make_replay_tables(
        self,
        spec: EnvironmentSpec,
        rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    ) -> list[reverb.Table]:
        """Build the tables of the replay server.

        Args:
          spec: specification of one environment.
          rate_limiter: limiter of the table of transitions; None for the config's.
        """

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        """Estimate the memory that a full replay takes."""

    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        """Build the learner's source of data; the tables have to exist."""

    def make_adders(
        self,
        client: reverb.Client,
        spec: EnvironmentSpec,
        env_indices: Sequence[int] = (0,),
        num_envs: int = 1,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ) -> Sequence[Adder]:
        """Build what one actor sends its data with.

        Args:
          client: client of the replay server.
          spec: specification of one environment.
          env_indices: indices of the actor's environments among those of all actors.
          num_envs: number of environments of all actors together.
          should_stop: asked while waiting for a replay that accepts no more transitions.
          learner_steps_fn: returns the learner steps of the parameters that act; they become part
            of what is sent.
        """

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        """Build the exploring policy of one actor.

        Args:
          spec: specification of one environment.
          env_indices: indices of the actor's environments among those of all actors.
          num_envs: number of environments of all actors together.
          seed: seed of initial parameters and exploration.
        """

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        """Build the policy that is evaluated, for `num_envs` environments."""

    def make_actor(
        self,
        policy: Policy,
        adders: Sequence[Any] = (),
        variable_source: core.VariableSource | None = None,
    ) -> core.Actor:
        """Build an actor with the adders of `make_adders`.

        Given a source of variables, it waits for the first ones.
        """

    def make_learner(
        self,
        spec: EnvironmentSpec,
        dataset: tf.data.Dataset | Sequence[tf.data.Dataset],
        client: reverb.Client | Sequence[reverb.Client],
        seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        """Build the learner; actors that read published parameters wait for its `publish`.

        Args:
          spec: specification of one environment.
          dataset: source of data, made by `make_dataset`; of each replay server, if there are
            several, by that of `share`.
          client: client of the replay server, or of each.
          seed: seed of the initial parameters.
          logger: receives learner steps, speeds and metrics.
          should_stop: asked while waiting for data.
        """
