"""Actors and publishers of parameters, for benchmarks without a run."""

import time
from collections.abc import Sequence

import reverb

from apex_agents import ApexDQNBuilder
from apex_agents.acting.actor import run_in_lock_step
from apex_agents.environments import EnvironmentSpec, VectorEnvironment
from apex_agents.replay import messages
from apex_agents.replay.messages import ParameterSource, to_arrays


class Actor:
    """An actor with the parts that it has in a run."""

    def __init__(
        self,
        builder: ApexDQNBuilder,
        environment: VectorEnvironment,
        address: str,
        indices: Sequence[int],
        num_envs: int,
    ):
        """Put an actor together; parameters have to be published by then.

        Args:
          builder: builder of the agent.
          environment: environments that it steps.
          address: address of the replay server.
          indices: indices of its environments among those of all actors.
          num_envs: number of environments of all actors.
        """
        client = reverb.Client(address)
        policy = builder.make_policy(environment.spec, indices, num_envs, seed=indices[0])
        source = ParameterSource(client)
        self._adders = builder.make_adders(
            client,
            environment.spec,
            indices,
            num_envs,
            learner_steps_fn=lambda: source.learner_steps,
        )
        self._steps = run_in_lock_step(
            environment, builder.make_actor(policy, self._adders, source)
        )

    def step(self) -> None:
        """Take one lock-step."""
        next(self._steps)

    def flush(self) -> None:
        """Wait until the server has all transitions."""
        for adder in self._adders:
            adder.flush()


class Publisher:
    """Publishes the parameters of an untrained network.

    Attributes:
      megabytes: size of the parameters.
    """

    def __init__(self, builder: ApexDQNBuilder, spec: EnvironmentSpec, address: str):
        """Publish for the first time."""
        tables = (messages.PARAMETERS, messages.PARAMETER_VERSION)
        self._publisher = messages.Publisher(reverb.Client(address), *tables)
        self._arrays = to_arrays(builder.make_evaluation_policy(spec, 1, seed=0).variables)
        self._learner_steps = 0
        self.megabytes = sum(a.nbytes for group in self._arrays.values() for a in group) / 1e6
        self.publish()

    def publish(self) -> float:
        """Publish the parameters, and return the milliseconds that it took."""
        self._learner_steps += 1
        started = time.perf_counter()
        sent = messages.parameter_messages(self._arrays, self._learner_steps)
        self._publisher.publish(*sent)
        self._publisher.flush()
        return 1e3 * (time.perf_counter() - started)
