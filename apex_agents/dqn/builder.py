"""Makes the parts of Ape-X DQN."""

from collections.abc import Callable, Sequence

import numpy as np
import reverb
import sonnet as snt
import tensorflow as tf
from acme import core, specs
from acme.utils import counting, loggers

from apex_agents.acting.actor import ApexActor, make_actor
from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.exploration import epsilon_ladder
from apex_agents.acting.policy import Policy
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.dqn.networks import make_network
from apex_agents.dqn.policy import EpsilonGreedyPolicy
from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.precision import compute_dtype
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.footprint import estimate_replay_bytes
from apex_agents.replay.tables import make_tables
from apex_agents.replay.transitions import item_signature
from apex_agents.validation import require


class ApexDQNBuilder:
    """See `apex_agents.builder.Builder` for what each method promises.

    Attributes:
      config: the agent's settings.
    """

    def __init__(self, config: ApexDQNConfig):
        """Remember the config; nothing is built yet.

        Raises:
          ValueError: the config is another agent's, or a field holds a value that cannot work.
        """
        kind = type(config).__name__
        require(isinstance(config, ApexDQNConfig), "agent", kind, "an ApexDQNConfig")
        config.validate()
        self.config = config

    def check_environment(self, spec: EnvironmentSpec) -> None:
        """Raise a ValueError unless actions are discrete and observations fit the network."""
        if not isinstance(spec.actions, specs.DiscreteArray):
            raise ValueError(
                f"Ape-X DQN needs discrete actions; the environment has {spec.actions}."
            )
        shape, stack = spec.observations.shape, self.config.frame_stack
        if self.config.network == "atari" and shape[1:] != (84, 84):
            raise ValueError(
                f"agent.network is 'atari', for frames [stack, 84, 84], but observations are "
                f"{shape}; use 'mlp'."
            )
        is_image = spec.observations.dtype == np.uint8 and len(shape) > 1
        if (stack or is_image) and (len(shape) < 2 or shape[0] != stack):
            raise ValueError(
                f"agent.frame_stack is {stack}, but observations are {shape}; it has to be their "
                "first dimension, or 0 when they are no images."
            )

    def make_replay_tables(
        self,
        spec: EnvironmentSpec,
        rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    ) -> list[reverb.Table]:
        """Build the tables of the replay server."""
        signature = item_signature(spec, self.config.n_step, self.config.frame_stack)
        variables = {"network": self._make_network(spec, seed=0).variables}
        return make_tables(self.config.replay, signature, variables, rate_limiter)

    def estimate_replay_bytes(self, spec: EnvironmentSpec) -> int:
        """Estimate the memory that a full replay takes."""
        signature = item_signature(spec, self.config.n_step, self.config.frame_stack)
        return estimate_replay_bytes(self.config.replay, signature, self.config.n_step)

    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        """Build the learner's source of batches."""
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
        """Build the adder of one environment."""
        return PrioritizedNStepAdder(
            client=client,
            replay=self.config.replay,
            n_step=self.config.n_step,
            discount=self.config.discount,
            frame_stack=self.config.frame_stack,
            should_stop=should_stop,
            learner_steps_fn=learner_steps_fn,
        )

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        """Build the exploring policy of some of all environments."""
        epsilons = epsilon_ladder(self.config.exploration, num_envs)[list(env_indices)]
        network = self._make_network(spec, seed, compute_dtype(self.config.bfloat16))
        return EpsilonGreedyPolicy(network, epsilons, seed)

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        """Build the policy that is evaluated."""
        epsilons = np.full(num_envs, self.config.exploration.evaluation_epsilon)
        return EpsilonGreedyPolicy(self._make_network(spec, seed), epsilons, seed)

    def make_actor(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedNStepAdder] = (),
        variable_source: core.VariableSource | None = None,
    ) -> ApexActor:
        """Build an actor; with a source of variables it begins with the newest ones."""
        period = self.config.variable_update_period
        return make_actor(policy, adders, variable_source, period)

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
        network = self._make_network(spec, seed)
        target_network = self._make_network(spec, seed)
        return ApexLearner(
            update=DQNUpdate(network, target_network, self.config),
            dataset=dataset,
            client=client,
            importance_sampling_exponent=self.config.replay.importance_sampling_exponent,
            publish_period=self.config.publish_period,
            num_sgd_steps_per_step=self.config.num_sgd_steps_per_step,
            counter=counter,
            logger=logger,
            should_stop=should_stop,
        )

    def _make_network(
        self, spec: EnvironmentSpec, seed: int, dtype: tf.DType = tf.float32
    ) -> snt.Module:
        tf.random.set_seed(seed)
        network = make_network(self.config, spec.actions.num_values, dtype)
        with snt.mixed_precision.scope(tf.float32):  # Makes the variables, which stay as they are.
            network(tf.zeros([1, *spec.observations.shape], spec.observations.dtype))
        return network
