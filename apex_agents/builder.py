"""What a program needs from an algorithm: the parts, and nothing about what is in them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import reverb
import tensorflow as tf
from acme import core
from acme.utils import counting, loggers

from apex_agents.acting.actor import ApexActor
from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import Policy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.learner import ApexLearner


class Builder(Protocol):
    """Makes the parts of an Ape-X agent; `program` and `run_local` put them together.

    Attributes:
      config: the agent's settings; programs read `config.replay` and `config.batch_size`.
    """

    @property
    def config(self) -> Any: ...

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Raise a ValueError if this agent, with its config, cannot learn in an environment."""
        ...

    def make_replay_tables(
        self,
        spec: EnvironmentSpec,
        rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    ) -> list[reverb.Table]:
        """Build the tables of the replay server.

        Args:
          spec: of one environment.
          rate_limiter: for the transitions, instead of the config's.
        """
        ...

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        """Estimate the memory that a full replay takes; `spec` is that of one environment."""
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
          client: connected to the replay server.
          should_stop: asked while waiting for a replay that accepts no more.
          learner_steps_fn: gives the learner steps of the parameters that act, which go into the
            transitions.
        """
        ...

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        """Build the exploring policy of some environments.

        Args:
          spec: of one environment.
          env_indices: indices of these environments among all environments of all actors.
          num_envs: environments of all actors together.
          seed: of initial parameters and exploration.
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

    def make_learner(  # noqa: PLR0913
        self,
        spec: EnvironmentSpec,
        dataset: tf.data.Dataset,
        client: reverb.Client,
        seed: int = 0,
        counter: counting.Counter | None = None,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ApexLearner:
        """Build the learner; actors elsewhere wait for its first `publish`."""
        ...
