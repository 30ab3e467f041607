"""Makes the parts of A2C and A3C."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from acme import core
from acme.utils import loggers

from apex_agents.acting.actor import ApexActor, make_variable_client
from apex_agents.acting.policy import GreedyPolicy
from apex_agents.actor_critic.acting_learner import ActingLearner
from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.learning import METRICS, ActorCriticUpdate
from apex_agents.actor_critic.networks import ActorCriticNetwork, make_network
from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.actor_critic.worker import GradientReceiver, Worker
from apex_agents.builder import Role
from apex_agents.environments import EnvironmentSpec, draw_observations, require_discrete_actions
from apex_agents.learning.gradients import (
    GRADIENTS,
    GradientSender,
    GradientSource,
    count_parameters,
    make_gradient_dataset,
    make_gradient_table,
)
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.update import Update
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.torso_choice import check_observations
from apex_agents.own_torso import TorsoFn
from apex_agents.replay.connections import Clients, ParameterPublisher, ReplayConnections
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.tables import DataFlow
from apex_agents.validation import check_config, require


class ActorCriticBuilder:
    """Builder of A2C and A3C; `apex_agents.builder.Builder` documents its methods."""

    def __init__(self, config: ActorCriticConfig, torso_fn: TorsoFn | None = None):
        """Check the config; nothing is built yet.

        Args:
          config: settings of the agent, an `A2CConfig` or an `A3CConfig`.
          torso_fn: maker of the torso in place of `config.torso`; see `ApexDQNBuilder`.

        Raises:
          ValueError: the config is that of a different agent, or has a value that is not allowed.
        """
        kind = type(config).__name__
        require(isinstance(config, ActorCriticConfig), "agent", kind, "an A2CConfig or A3CConfig")
        check_config(config, "agent.")
        self.config = config
        self._torso_fn = torso_fn

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Check that actions are discrete and that the network fits the observations.

        Raises:
          ValueError: one of them does not hold.
        """
        require_discrete_actions(spec, "A2C and A3C need")
        check_observations(self.config, spec, self._torso_fn)
        network = self.make_networks(spec)
        if any(isinstance(module, RunningNormalization) for module in network.submodules):
            raise ValueError(
                "The torso has a RunningNormalization. A2C and A3C cannot normalize observations: "
                "their learner sees none; let a wrapper of the environment scale them."
            )
        state = [v for v in network.variables if not v.trainable]
        before = [v.numpy() for v in state]
        network(tf.constant(draw_observations(spec)))
        changed = [
            v.name for v, old in zip(state, before, strict=True) if not np.array_equal(v, old)
        ]
        if changed:
            raise ValueError(
                f"A call of the torso changes its variables {changed}. The learner of A2C and A3C "
                "sees no observations: what it publishes would set them back."
            )

    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> ActorCriticNetwork:
        """Build the network, from observations `[B, ...]` to a `networks.PolicyAndValue`."""
        tf.random.set_seed(seed)
        return make_network(self.config, spec, self._torso_fn)

    def roles(self, roles: Sequence[Role]) -> Sequence[Role]:
        """List the roles of a run: a single worker acts in the learner's process, if it is ours."""
        own, ours = type(self), ActorCriticBuilder
        is_ours = own.make_actor is ours.make_actor and own.make_learner is ours.make_learner
        return [
            role for role in roles if not (is_ours and role.name == "actor" and role.num_nodes == 1)
        ]

    def data_flow(self, num_envs_per_actor: int) -> DataFlow:
        min_steps = self.config.n_step * num_envs_per_actor
        return DataFlow(
            table=GRADIENTS,
            max_size=self.config.queue_size,
            max_size_field="agent.queue_size",
            min_steps=min_steps,
            usual_min_steps=min_steps,
            min_size_field="agent.n_step * run.num_envs_per_actor",
        )

    def share(self, num_replays: int) -> "ActorCriticBuilder":
        require(num_replays == 1, "run.num_replays", num_replays, "1: A2C and A3C have one queue")
        return self

    def make_replay_tables(self, spec: EnvironmentSpec) -> list[reverb.Table]:
        network = self.make_networks(spec)
        size = count_parameters(network.trainable_variables)
        table = make_gradient_table(size, len(METRICS), self.config.queue_size)
        return [table, *make_message_tables({"network": network.variables})]

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        size = count_parameters(self.make_networks(spec).trainable_variables)
        return 4 * size * self.config.queue_size

    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        size = count_parameters(self.make_networks(spec).trainable_variables)
        return make_gradient_dataset(client, size, len(METRICS))

    def make_adders(
        self,
        client: reverb.Client,
        spec: EnvironmentSpec,
        env_indices: Sequence[int] = (0,),
        num_envs: int = 1,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] | None = None,
    ) -> list[GradientSender]:
        """Build one sender, for all environments of the worker.

        Raises:
          ValueError: A2C's workers cannot tell versions apart, without `learner_steps_fn`.
        """
        del spec
        if learner_steps_fn is None and self.config.is_synchronous:
            raise ValueError(
                "A2C's make_adders needs learner_steps_fn, the learner steps of the parameters "
                "that act: lambda: source.learner_steps, of the ParameterSource from which the "
                "worker gets its variables."
            )
        steps_fn = learner_steps_fn or (lambda: 0)
        return [GradientSender(client, env_indices, num_envs, should_stop, steps_fn)]

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> SoftmaxPolicy:
        del env_indices, num_envs
        return SoftmaxPolicy(self.make_networks(spec, seed), seed)

    def make_evaluation_policy(
        self, spec: EnvironmentSpec, num_envs: int, seed: int
    ) -> SoftmaxPolicy:
        del num_envs
        return SoftmaxPolicy(self.make_networks(spec, seed), seed, self.config.greedy_evaluation)

    def make_greedy_policy(self, spec: EnvironmentSpec) -> GreedyPolicy:
        network = self.make_networks(spec)
        return GreedyPolicy(
            {"network": network},
            "logits",
            lambda observation: (network(observation).logits, ()),
            value=lambda observation, action: network(observation).value,
        )

    def make_actor(
        self,
        policy: Any,
        adders: Sequence[GradientSender] = (),
        variable_source: core.VariableSource | None = None,
    ) -> Worker | ApexActor:
        """Build a worker from a `SoftmaxPolicy`, one sender and a source of variables.

        Without a sender this is an actor that only acts, and pulls variables at every step.

        Raises:
          ValueError: there are several senders, or there is one and no source of variables.
        """
        if not adders:
            return ApexActor(policy, (), make_variable_client(policy, variable_source))
        if variable_source is None or len(adders) != 1:
            raise ValueError("a worker needs the sender of make_adders and a variable_source.")
        (sender,) = adders
        update = self.make_network_update(policy.network)
        client = make_variable_client(policy, variable_source)
        await_next = getattr(variable_source, "await_next", None)
        receiver = GradientReceiver(update, sender, client, self.config, await_next)
        return Worker(policy, self.config, receiver)

    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
        """Build the update of the learner, with a network whose variables follow from a seed."""
        return self.make_network_update(self.make_networks(spec, seed))

    def make_network_update(self, network: ActorCriticNetwork) -> Update:
        """Build the update of workers and learner; the method to override for another loss."""
        return ActorCriticUpdate(network, self.config)

    def make_learner(
        self,
        spec: EnvironmentSpec,
        client: Clients,
        seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        update = self.make_update(spec, seed)
        replays = ReplayConnections(client, lambda c: self.make_dataset(c, spec))
        max_wait_seconds = self.config.max_wait_seconds if self.config.is_synchronous else None
        source = GradientSource(update, replays, METRICS, max_wait_seconds)
        publisher = ParameterPublisher(client)
        return ApexLearner(update, source, publisher, logger=logger, should_stop=should_stop)

    def make_acting_learner(  # noqa: PLR0913
        self,
        spec: EnvironmentSpec,
        client: Clients,
        num_envs: int,
        seed: int = 0,
        policy_seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ActingLearner:
        """Build the learner of a run with a single worker, which acts in `num_envs` environments.

        Args:
          spec: specification of one environment.
          client: client of the replay server, on which parameters are published.
          num_envs: number of environments.
          seed: seed of the initial parameters.
          policy_seed: seed of the worker's actions.
          logger: see `make_learner`.
          should_stop: see `make_learner`.
        """
        policy = self.make_policy(spec, range(num_envs), num_envs, policy_seed)
        initial = self.make_networks(spec, seed)
        for variable, value in zip(policy.network.variables, initial.variables, strict=True):
            variable.assign(value)
        update = self.make_network_update(policy.network)
        publisher = ParameterPublisher(client)
        return ActingLearner(
            update, policy, self.config, publisher, logger=logger, should_stop=should_stop
        )
