"""The seam between a program and an algorithm: which parts an agent has."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import reverb
import tensorflow as tf
from acme import core
from acme.utils import loggers

from apex_agents.acting.actor import ApexActor
from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import Policy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.learner import ApexLearner


class Builder(Protocol):
    """Makes the parts of an Ape-X agent; `program` and `run_local` put them together.

    Attributes:
      config: settings of the agent; programs read `config.replay`, `config.batch_size` and
        `config.num_sgd_steps_per_step`.
    """

    @property
    def config(self) -> Any: ...

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Check that this agent, with its config, can learn in an environment.

        Raises:
          ValueError: it cannot; the message says why.
        """
        ...

    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> Any:
        """Build the agent's networks for one environment; their variables exist."""
        ...

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
        ...

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        """Estimate the memory that a full replay takes."""
        ...

    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        """Build the learner's source of batches; the tables have to exist."""
        ...

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
        ...

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
        ...

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        """Build the policy that is evaluated, for `num_envs` environments."""
        ...

    def make_actor(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedNStepAdder] = (),
        variable_source: core.VariableSource | None = None,
    ) -> ApexActor:
        """Build an actor; given a source of variables, it waits for the first ones."""
        ...

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
        ...
