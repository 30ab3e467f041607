"""Makes the parts of Ape-X DPG."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import reverb
import tensorflow as tf
from acme import core
from acme.utils import loggers

from apex_agents.acting.actor import ApexActor, make_actor
from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import Policy
from apex_agents.builder import Role
from apex_agents.dpg.config import TORSOS, ApexDPGConfig
from apex_agents.dpg.learning import DPGUpdate
from apex_agents.dpg.networks import DPGNetworks, make_networks
from apex_agents.dpg.policy import GaussianNoisePolicy, noise_ladder
from apex_agents.environments import EnvironmentSpec, require_unit_vectors
from apex_agents.learning.learner import ApexLearner, ReplaySource
from apex_agents.learning.update import Update
from apex_agents.networks.own_torso import TorsoFn
from apex_agents.networks.torso_choice import require_no_normalized_images
from apex_agents.replay.config import share_config
from apex_agents.replay.connections import ReplayConnections
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.flow import DataFlow, make_data_flow
from apex_agents.replay.layout import Layout
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.priorities import make_priority_fn
from apex_agents.replay.tables import make_transition_table
from apex_agents.replay.transitions import make_layout
from apex_agents.validation import require


class ApexDPGBuilder:
    """Builder of Ape-X DPG; `apex_agents.builder.Builder` documents its methods."""

    def __init__(self, config: ApexDPGConfig, torso_fn: TorsoFn | None = None):
        """Check the config; nothing is built yet.

        Args:
          config: settings of the agent.
          torso_fn: maker of all torsos in place of those of the config; see `ApexDQNBuilder`.

        Raises:
          ValueError: the config is another agent's, or a field has a value that is not allowed.
        """
        kind = type(config).__name__
        require(isinstance(config, ApexDPGConfig), "agent", kind, "an ApexDPGConfig")
        config.validate()
        self.config = config
        self._torso_fn = torso_fn

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Check that actions are float vectors in [-1, 1] and that the networks fit.

        Raises:
          ValueError: one of them does not hold.
        """
        require_unit_vectors(spec)
        torsos = {self.config.policy_torso, self.config.critic_torso}
        built_in = torsos.intersection(TORSOS) if self._torso_fn is None else set()
        require_no_normalized_images(self.config.normalize_observations, spec)
        if built_in != torsos:
            for _ in range(2):  # The target networks have torsos of their own.
                self.make_networks(spec)

    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> DPGNetworks:
        """Build policy and critic."""
        tf.random.set_seed(seed)
        return make_networks(self.config, spec, self._torso_fn)

    def make_layout(self, spec: EnvironmentSpec) -> Layout:
        """Choose how transitions lie in the replay."""
        return make_layout(spec, self.config.replay, self.config.n_step)

    def make_replay_tables(
        self,
        spec: EnvironmentSpec,
        rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    ) -> list[reverb.Table]:
        networks = self.make_networks(spec)
        variables = {name: net.variables for name, net in networks._asdict().items()}
        signature = self.make_layout(spec).signature
        table = make_transition_table(self.config.replay, signature, rate_limiter)
        return [table, *make_message_tables(variables)]

    def share(self, num_replays: int) -> "ApexDPGBuilder":
        shared = copy.copy(self)
        shared.config = share_config(self.config, num_replays)
        return shared

    def roles(self, roles: Sequence[Role]) -> Sequence[Role]:
        return roles

    def data_flow(self, num_envs_per_actor: int) -> DataFlow:
        return make_data_flow(self.config)

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
    ) -> list[PrioritizedNStepAdder]:
        layout = self.make_layout(spec)
        priority_fn = make_priority_fn(self.config.replay)  # One for all of an actor.
        return [
            PrioritizedNStepAdder(
                client=client,
                layout=layout,
                replay=self.config.replay,
                n_step=self.config.n_step,
                discount=self.config.discount,
                should_stop=should_stop,
                learner_steps_fn=learner_steps_fn,
                priority_fn=priority_fn,
            )
            for _ in env_indices
        ]

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        """Build the exploring policy of one actor: each environment has its own noise scale."""
        noise_scales = noise_ladder(self.config.exploration, num_envs)[list(env_indices)]
        return GaussianNoisePolicy(self.make_networks(spec, seed), noise_scales, seed)

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        """Build the policy that is evaluated: without noise."""
        return GaussianNoisePolicy(self.make_networks(spec, seed), np.zeros(num_envs), seed)

    def make_actor(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedNStepAdder] = (),
        variable_source: core.VariableSource | None = None,
    ) -> ApexActor:
        return make_actor(policy, adders, variable_source, self.config.variable_update_period)

    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
        """Build what the learner does with a batch; the method to override for another loss."""
        online, target = [self.make_networks(spec, seed) for _ in range(2)]
        return DPGUpdate(online, target, self.config)

    def make_learner(
        self,
        spec: EnvironmentSpec,
        dataset: tf.data.Dataset | Sequence[tf.data.Dataset],
        client: reverb.Client | Sequence[reverb.Client],
        seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        config, update = self.config, self.make_update(spec, seed)
        sizes = (config.batch_size, config.num_sgd_steps_per_step)
        source = ReplaySource(update, ReplayConnections(client, dataset, *sizes), config)
        return ApexLearner(update, source, config.publish_period, logger, should_stop)
