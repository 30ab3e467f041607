"""The actor: one policy evaluation for all environments, one adder for each.

Horgan et al. 2018, algorithm 1.
"""

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from acme import core
from acme.tf import variable_utils

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import Policy, PolicyOutput


def make_actor(
    policy: Policy,
    adders: Sequence[PrioritizedNStepAdder],
    variable_source: core.VariableSource | None,
    update_period: int,
) -> "ApexActor":
    """Build an actor; given a source of variables, it waits for the first ones.

    Args:
      policy: chooses the actions.
      adders: one per environment, or none for an actor that records nothing.
      variable_source: where new variables come from; None leaves the policy's alone.
      update_period: agent steps between two pulls of variables.

    Returns:
      An actor whose policy has the newest variables.
    """
    variable_client = None
    if variable_source is not None:
        variable_client = variable_utils.VariableClient(
            variable_source, policy.variables, update_period
        )
        variable_client.update_and_wait()
    return ApexActor(policy, adders, variable_client)


class ApexActor(core.Actor):
    """Acts in environments that run in lock-step, or in one environment, and records what happens.

    Time steps are either batched, every field `[E, ...]` (`environments.VectorEnvironment`,
    `acting.loop`), or those of a single dm_env environment (`acme.EnvironmentLoop`); the first one
    observed decides.
    """

    def __init__(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedNStepAdder] = (),
        variable_client: variable_utils.VariableClient | None = None,
    ):
        """Put the parts together.

        Args:
          policy: evaluated once per step for all environments.
          adders: one per environment, or none for an actor that records nothing.
          variable_client: keeps the policy's variables up to date; None leaves them alone.
        """
        self._policy = policy
        self._adders = adders
        self._variable_client = variable_client
        self._timestep: Any = None  # Batched; its arrays belong to us.
        self._output: Any = None
        self._batched = True

    def select_action(self, observation: np.ndarray) -> np.ndarray:
        """Return the actions, `[E]` or `[E, D]`; `[]` or `[D]` for a single environment."""
        self._output = self._policy(observation if self._batched else observation[None])
        return self._output.action if self._batched else self._output.action[0]

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """Begin recording with the first time step."""
        self._batched = np.ndim(timestep.step_type) > 0
        self._timestep = self._own(timestep)

    def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
        """Record what the last action, chosen by `select_action`, led to."""
        action = np.asarray(action)
        self._record(self._output._replace(action=action if self._batched else action[None]))
        self._timestep = self._own(next_timestep)
        # With one environment nobody asks for an action at the end of an episode, yet the value of
        # a truncated episode's last observation is needed.
        if not self._batched and next_timestep.last():
            self._record(self._policy(self._timestep.observation))

    def update(self, wait: bool = False) -> None:
        """Pull parameters when they are due, without blocking unless `wait`."""
        if self._variable_client is not None:
            self._variable_client.update(wait)

    def close(self) -> None:
        """Send what the adders hold and close them."""
        for adder in self._adders:
            adder.close()

    def _record(self, output: PolicyOutput) -> None:
        for env_index, adder in enumerate(self._adders):
            timestep = dm_env.TimeStep(*[field[env_index] for field in self._timestep])
            adder.add(timestep, PolicyOutput(*[field[env_index] for field in output]))

    def _own(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        """Copy a time step, batched: environments hand out the same arrays again and again."""
        if self._batched:
            return dm_env.TimeStep(*[np.array(field) for field in timestep])
        reward = 0.0 if timestep.first() else timestep.reward
        discount = 1.0 if timestep.first() else timestep.discount
        fields = (timestep.step_type, reward, discount, timestep.observation)
        return dm_env.TimeStep(*[np.array(field)[None] for field in fields])
