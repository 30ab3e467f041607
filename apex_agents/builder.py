"""The parts of an Ape-X agent, of which an algorithm makes policies and updates."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import reverb
import tensorflow as tf
from acme import core
from acme.utils import loggers

from apex_agents.acting.actor import ApexActor, make_actor
from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import Policy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.update import Update
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.footprint import estimate_replay_bytes
from apex_agents.replay.tables import make_tables
from apex_agents.replay.transitions import item_signature
from apex_agents.validation import require


class Builder(abc.ABC):
    """Makes the parts of an agent; `program` and `run_local` put them together.

    Attributes:
      config_class: dataclass of the agent's settings.
      config: settings of the agent.
    """

    config_class: type

    def __init__(self, config: Any):
        """Check the config; nothing is built yet.

        Raises:
          ValueError: the config is another agent's, or a field has a value that is not allowed.
        """
        is_ours = isinstance(config, self.config_class)
        require(is_ours, "agent", type(config).__name__, f"an {self.config_class.__name__}")
        config.validate()
        self.config = config

    @abc.abstractmethod
    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Raise a ValueError that says why this agent, with its config, cannot learn there."""

    @abc.abstractmethod
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

    @abc.abstractmethod
    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        """Build the policy that is evaluated, for `num_envs` environments."""

    @abc.abstractmethod
    def make_update(self, spec: EnvironmentSpec, seed: int) -> Update:
        """Build the learner's networks, with parameters that follow from the seed, and update."""

    def make_replay_tables(
        self,
        spec: EnvironmentSpec,
        rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    ) -> list[reverb.Table]:
        """Build the tables of the replay server; `rate_limiter` replaces the config's."""
        variables = self.make_evaluation_policy(spec, num_envs=1, seed=0).variables
        return make_tables(self.config.replay, self._signature(spec), variables, rate_limiter)

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        """Estimate the memory that a full replay takes."""
        return estimate_replay_bytes(self.config.replay, self._signature(spec), self.config.n_step)

    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        """Build the learner's source of batches; the tables have to exist."""
        config = self.config
        return make_dataset(
            client, config.replay, config.batch_size, spec, config.num_sgd_steps_per_step
        )

    def make_adder(
        self,
        client: reverb.Client,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ) -> PrioritizedNStepAdder:
        """Build the adder of one environment.

        Args:
          client: client of the replay server.
          should_stop: asked while waiting for a replay that accepts no more transitions.
          learner_steps_fn: returns the learner steps of the parameters that act; they become part
            of each transition.
        """
        return PrioritizedNStepAdder(
            client=client,
            replay=self.config.replay,
            n_step=self.config.n_step,
            discount=self.config.discount,
            frame_stack=self._frame_stack,
            should_stop=should_stop,
            learner_steps_fn=learner_steps_fn,
        )

    def make_actor(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedNStepAdder] = (),
        variable_source: core.VariableSource | None = None,
    ) -> ApexActor:
        """Build an actor; given a source of variables, it waits for the first ones."""
        return make_actor(policy, adders, variable_source, self.config.variable_update_period)

    def make_learner(
        self,
        spec: EnvironmentSpec,
        dataset: tf.data.Dataset,
        client: reverb.Client,
        seed: int = 0,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        """Build the learner; actors that read published parameters wait for its `publish`.

        Args:
          spec: specification of one environment.
          dataset: source of batches, made by `make_dataset`.
          client: client of the replay server.
          seed: seed of the initial parameters.
          logger: receives learner steps, speeds and metrics.
          should_stop: asked while waiting for data.
        """
        update = self.make_update(spec, seed)
        return ApexLearner(update, dataset, client, self.config, logger, should_stop)

    @property
    def _frame_stack(self) -> int:
        return getattr(self.config, "frame_stack", 0)  # Not every agent learns from frames.

    def _signature(self, spec: EnvironmentSpec) -> dict[str, tf.TensorSpec]:
        return item_signature(spec, self.config.n_step, self._frame_stack)
