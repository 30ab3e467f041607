"""The seam between a program and an agent: the parts that it has, and those all of Ape-X share."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import reverb
import tensorflow as tf
from acme import core
from acme.utils import loggers

from apex_agents.acting.actor import ApexActor, make_variable_client
from apex_agents.acting.adder import PrioritizedAdder, PrioritizedNStepAdder
from apex_agents.acting.policy import GreedyPolicy, Policy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.learner import ApexLearner, ReplaySource, make_update_on_sample
from apex_agents.learning.update import Update
from apex_agents.own_torso import TorsoFn
from apex_agents.replay.config import share_config
from apex_agents.replay.connections import Clients, ParameterPublisher, ReplayConnections
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.layout import Layout
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.priorities import make_priority_fn
from apex_agents.replay.tables import DataFlow, make_data_flow, make_transition_table, serve
from apex_agents.replay.transitions import make_layout
from apex_agents.validation import check_config, require


class Role(NamedTuple):
    """A kind of nodes: how many a run has, what they do, what they may use.

    A node that computes may use GPUs and the learner's cores, with a thread on each of them; any
    other sees no GPU and uses one thread.
    """

    name: str  # Its resources on a cluster have the same name in `run.cluster`.
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


def acts_in_learner(builder: Any, actor: Role) -> bool:
    """Return whether the learner acts itself: it can, and the builder lists no such actors."""
    return hasattr(builder, "make_acting_learner") and not builder.roles([actor])


class Adder(Protocol):
    """Sends an actor's experience in one or several environments to the replay server.

    Attributes:
      num_steps: agent steps sent so far.
      num_items: items, such as transitions or gradients, sent so far; replicas are counted once.
      num_not_finite: agent steps left out because a number in them was NaN or infinite.
    """

    num_steps: int
    num_not_finite: int

    @property
    def num_items(self) -> int: ...

    def flush(self) -> None:
        """Send all that is complete, as soon as the server accepts it."""

    def close(self) -> None:
        """Send all that is complete, unless the program stops, and end."""


class Builder(Protocol):
    """Makes the parts of an agent; `program` and `run_local` put them together.

    Attributes:
      config: settings of the agent.
    """

    config: Any

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Check that this agent, with its config, can learn in an environment.

        Raises:
          ValueError: it cannot; the message says why.
        """

    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> Any:
        """Build the networks: a module, or a named tuple of modules, in float32.

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

    def make_replay_tables(self, spec: EnvironmentSpec) -> list[reverb.Table]:
        """Build the tables of the replay server."""

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
        """Build the adders, with which one actor sends its data.

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

    def make_greedy_policy(self, spec: EnvironmentSpec) -> GreedyPolicy:
        """Build the policy of a trained agent, whose parameters are read later."""

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
        client: Clients,
        seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        """Build the learner; actors that read published parameters wait for its `publish`.

        Args:
          spec: specification of one environment.
          client: client of the replay server, or of each; the data comes from `make_dataset`.
          seed: seed of the initial parameters.
          logger: receives learner steps, speeds and metrics.
          should_stop: asked while waiting for data.
        """


def make_n_step_adders(
    config: Any, layout: Layout, client: reverb.Client, num_adders: int, **calls: Any
) -> list[PrioritizedNStepAdder]:
    """Make the adders of n-step transitions; see `Algorithm.make_adders`."""
    # Shared by the actor's adders: 'max' is their common highest priority.
    priority_fn = make_priority_fn(config.replay)
    return [
        PrioritizedNStepAdder(
            client=client,
            layout=layout,
            replay=config.replay,
            n_step=config.n_step,
            discount=config.discount,
            priority_fn=priority_fn,
            **calls,
        )
        for _ in range(num_adders)
    ]


def make_n_step_layout(config: Any, spec: EnvironmentSpec) -> Layout:
    """Choose how n-step transitions lie in the replay; see `Algorithm.make_layout`."""
    return make_layout(spec, config.replay, config.n_step, getattr(config, "frame_stack", 0))


class Algorithm(NamedTuple):
    """Functions of a config that distinguish one agent of the Ape-X family from another.

    Attributes:
      config_class: dataclass of the agent's settings.
      check_environment: `(config, spec, torso_fn)`; raises a ValueError if the agent cannot learn
        in the environment, and returns whether only making the networks can show that they fit.
      make_networks: `(config, spec, torso_fn, **options)`; returns a module, or a named tuple of
        modules.
      make_policy: `(config, make_networks, env_indices, num_envs, seed)`; returns the exploring
        policy of an actor. `make_networks(**options)` makes its networks.
      make_evaluation_policy: `(config, networks, num_envs, seed)`; returns the evaluated policy.
      make_update: `(online, target, config)`; returns the update of online and target networks.
      make_greedy_policy: `(networks)`; returns the policy of a trained agent. Without it no policy
        can be loaded or exported.
      make_layout: `(config, spec)`; returns the layout of the data in the replay.
      make_adders: `(config, layout, client, num_adders, should_stop, learner_steps_fn)`; returns
        the adders of an actor, one for each environment.
    """

    config_class: type
    check_environment: Callable[..., bool]
    make_networks: Callable[..., Any]
    make_policy: Callable[..., Policy]
    make_evaluation_policy: Callable[..., Policy]
    make_update: Callable[..., Update]
    make_greedy_policy: Callable[..., GreedyPolicy] | None = None
    make_layout: Callable[..., Layout] = make_n_step_layout
    make_adders: Callable[..., Sequence[PrioritizedAdder]] = make_n_step_adders


class ApexBuilder:
    """Builder of an agent with prioritized replay; `Builder` documents most of its methods."""

    def __init__(self, config: Any, algorithm: Algorithm, torso_fn: TorsoFn | None = None):
        """Check the config; nothing is built yet.

        Args:
          config: settings of the agent.
          algorithm: the agent's own parts.
          torso_fn: maker of all torsos in place of those of the config; see
            `own_torso.TorsoFn`.

        Raises:
          ValueError: the config is that of a different agent, or has a value that is not allowed.
        """
        kind, expected = type(config).__name__, algorithm.config_class
        require(isinstance(config, expected), "agent", kind, f"an {expected.__name__}")
        check_config(config, "agent.")
        self.config = config
        self._algorithm = algorithm
        self._torso_fn = torso_fn

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Check that actions and observations are those that the agent can learn from.

        Raises:
          ValueError: they are not.
        """
        if self._algorithm.check_environment(self.config, spec, self._torso_fn):
            for _ in range(2):  # Target networks have separate torsos.
                self.make_networks(spec)

    def make_networks(self, spec: EnvironmentSpec, seed: int = 0, **options: Any) -> Any:
        """Build the networks, with initial parameters that follow from a seed.

        Args:
          spec: specification of one environment.
          seed: seed of the initial parameters.
          **options: further arguments of the algorithm, such as the `dtype` of Ape-X DQN.
        """
        tf.random.set_seed(seed)
        return self._algorithm.make_networks(self.config, spec, torso_fn=self._torso_fn, **options)

    def make_layout(self, spec: EnvironmentSpec) -> Layout:
        """Choose how data lies in the replay."""
        return self._algorithm.make_layout(self.config, spec)

    def share(self, num_replays: int) -> "ApexBuilder":
        shared = copy.copy(self)
        shared.config = share_config(self.config, num_replays)
        return shared

    def roles(self, roles: Sequence[Role]) -> Sequence[Role]:
        return roles

    def data_flow(self, num_envs_per_actor: int) -> DataFlow:
        return make_data_flow(self.config)

    def make_replay_tables(self, spec: EnvironmentSpec) -> list[reverb.Table]:
        networks = self.make_networks(spec)
        # These have the precision that the learner publishes; that of actors may be lower.
        policy = self._algorithm.make_policy(self.config, lambda **_: networks, [0], 1, 0)
        signature = self.make_layout(spec).signature
        table = make_transition_table(self.config.replay, signature)
        return [table, *make_message_tables(policy.variables)]

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        return round(self.config.replay.max_size * self.make_layout(spec).bytes_per_item)

    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        config, layout = self.config, self.make_layout(spec)
        num_batches = config.num_sgd_steps_per_step
        return make_dataset(client, config.replay, config.batch_size, layout, num_batches)

    def make_adders(
        self,
        client: reverb.Client,
        spec: EnvironmentSpec,
        env_indices: Sequence[int] = (0,),
        num_envs: int = 1,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ) -> Sequence[PrioritizedAdder]:
        return self._algorithm.make_adders(
            self.config,
            self.make_layout(spec),
            client,
            len(env_indices),
            should_stop=should_stop,
            learner_steps_fn=learner_steps_fn,
        )

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        make_networks = functools.partial(self.make_networks, spec, seed)
        return self._algorithm.make_policy(self.config, make_networks, env_indices, num_envs, seed)

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        networks = self.make_networks(spec, seed)
        return self._algorithm.make_evaluation_policy(self.config, networks, num_envs, seed)

    def make_greedy_policy(self, spec: EnvironmentSpec) -> GreedyPolicy:
        make_policy, kind = self._algorithm.make_greedy_policy, type(self).__name__
        if make_policy is None:
            raise ValueError(f"{kind} has no make_greedy_policy; its Algorithm may have one.")
        return make_policy(self.make_networks(spec))

    def make_actor(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedAdder] = (),
        variable_source: core.VariableSource | None = None,
    ) -> ApexActor:
        # An actor that only acts may be asked for an episode now and then.
        update_period = self.config.variable_update_period if adders else 1
        return ApexActor(
            policy, adders, make_variable_client(policy, variable_source, update_period)
        )

    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
        """Build the update of the learner; the method to override for another loss."""
        online, target = [self.make_networks(spec, seed) for _ in range(2)]
        return self._algorithm.make_update(online, target, self.config)

    def compile_update(self, spec: EnvironmentSpec) -> None:
        """Compile the learner's update of a sample, without running it.

        User-defined builders are checked by it before a run. One whose learner learns from
        different data overrides it.
        """
        update = self.make_update(spec)
        if callable(update):
            raise TypeError(f"{type(update).__name__} has __call__; an update overrides compute")
        # A dataset of the user's may ask the server for its tables.
        with serve(self.make_replay_tables(spec)) as client:
            samples = self.sample_spec(client, spec, self.config.num_sgd_steps_per_step)
        make_update_on_sample(update, self.config).get_concrete_function(samples)

    def sample_spec(
        self, client: reverb.Client, spec: EnvironmentSpec, num_batches: int = 1
    ) -> reverb.ReplaySample:
        """Return the specs of samples of so many batches, whose size users' code may read."""
        num_rows = num_batches * self.config.batch_size
        return tf.nest.map_structure(
            lambda part: tf.TensorSpec([num_rows, *part.shape[1:]], part.dtype),
            self.make_dataset(client, spec).element_spec,
        )

    def make_learner(
        self,
        spec: EnvironmentSpec,
        client: Clients,
        seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        config, update = self.config, self.make_update(spec, seed)
        sizes = (config.batch_size, config.num_sgd_steps_per_step)
        shared = self.share(1 if isinstance(client, reverb.Client) else len(client))
        replays = ReplayConnections(client, lambda c: shared.make_dataset(c, spec), *sizes)
        source = ReplaySource(make_update_on_sample(update, config), replays, config)
        publisher = ParameterPublisher(client)
        return ApexLearner(update, source, publisher, config.publish_period, logger, should_stop)
