"""The actor (Horgan et al. 2018, algorithm 1), its loop, and how it gets parameters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import dm_env
import numpy as np
from acme import core
from acme.tf import variable_utils

from apex_agents.acting.adder import PrioritizedAdder
from apex_agents.acting.policy import Policy, PolicyOutput
from apex_agents.environments import Episode, VectorEnvironment, make_batch
from apex_agents.replay.messages import ParameterSource


def make_variable_client(
    policy: Policy, variable_source: core.VariableSource | None, update_period: int = 1
) -> variable_utils.VariableClient | None:
    """Make the client that updates the variables of a policy, and wait for the first values.

    Args:
      policy: policy whose variables are updated.
      variable_source: source of new values; None leaves the variables as they are.
      update_period: agent steps of each environment between two pulls.
    """
    if variable_source is None:
        return None
    variables = policy.variables
    if isinstance(variable_source, ParameterSource):
        variables = variable_source.track(variables)
    client = variable_utils.VariableClient(variable_source, variables, update_period)
    client.update_and_wait()
    return client


def run_in_lock_step(
    environment: VectorEnvironment,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
    wait: bool = False,
) -> Iterator[list[Episode]]:
    """Let a batched actor act until `should_stop`; with `wait` it waits for parameters when due.

    Yields:
      The episodes that finished in each lock-step (one agent step in each environment).
    """
    timestep = environment.reset()
    actor.observe_first(timestep)
    while not should_stop():
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, timestep)
        if (begun := environment.begin_episodes()) is not None:
            timestep = begun
            actor.observe_first(timestep)
        actor.update(wait)
        yield environment.finished_episodes()


class ApexActor(core.Actor):
    """Acts in environments that run in lock-step, or in a single one, and records what happens.

    There is one policy for all environments, and an adder for each.

    Time steps are either batched, every field `[E, ...]` (`run_in_lock_step`), or those of a single
    dm_env environment (`acme.EnvironmentLoop`); the first one observed decides. Where environments
    begin the next episodes at once, `observe_first` gets the batch in which some rows are FIRST.

    Adders keep the arrays that they are given. A `VectorEnvironment` returns new ones at each call,
    so that batched time steps are not copied. A single environment may reuse its arrays: they are
    copied once, here.
    """

    def __init__(
        self,
        policy: Policy,
        adders: Sequence[PrioritizedAdder] = (),
        variable_client: variable_utils.VariableClient | None = None,
    ):
        """Put the parts together.

        Args:
          policy: chooses the actions.
          adders: one per environment, or none for an actor that records nothing.
          variable_client: see `make_variable_client`.
        """
        self._policy = policy
        self._adders = adders
        self._variable_client = variable_client
        self._is_batched = True
        self._timestep: dm_env.TimeStep  # The newest one, batched.
        self._output: Any = None  # The `PolicyOutput` for it, or for the one before.

    def select_action(self, observation: np.ndarray) -> np.ndarray:
        """Return the actions for the time step observed last, to which the observation belongs.

        Returns:
          `[E]` or `[E, D]`; `[]` or `[D]` for a single environment.
        """
        self._output = self._policy(self._timestep)
        return self._output.action if self._is_batched else self._output.action[0]

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self._is_batched = np.ndim(timestep.step_type) > 0
        if self._is_batched and self._output is not None:
            self._record_ends()
        self._timestep = make_batch(timestep)

    def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
        """Record the last time step with the action that was taken at it."""
        action = np.asarray(action) if self._is_batched else np.array(action)[None]
        self._record(self._output._replace(action=action))
        self._timestep = make_batch(next_timestep)
        if not self._is_batched and next_timestep.last():  # Acme's loop asks for no action there.
            self._record(self._policy(self._timestep))

    def update(self, wait: bool = False) -> None:
        if self._variable_client is not None:
            self._variable_client.update(wait)

    def close(self) -> None:
        """Send what the adders hold and close them."""
        for adder in self._adders:
            adder.close()

    def _record_ends(self) -> None:
        """Record the LAST rows of a batch, at which no action is chosen."""
        timestep = self._timestep
        is_last = timestep.step_type == dm_env.StepType.LAST
        if not self._adders or not is_last.any():
            return
        value = np.zeros(len(is_last), np.float32)
        if timestep.discount[is_last].any():  # Else all of them terminated.
            value = self._find_value(timestep)
        output = self._output._replace(q_taken=value, value=value)
        self._record(output, np.flatnonzero(is_last))

    def _find_value(self, timestep: dm_env.TimeStep) -> np.ndarray:
        policy: Any = self._policy
        if hasattr(policy, "value"):
            return policy.value(timestep)
        if self._output.state:
            raise TypeError(f"{type(policy).__name__} has a memory; it needs the method `value`.")
        return policy(timestep).value

    def _record(self, output: PolicyOutput, rows: Iterable[int] | None = None) -> None:
        for i in range(len(self._adders)) if rows is None else rows:
            timestep = dm_env.TimeStep(*[field[i] for field in self._timestep])
            self._adders[i].add(timestep, output.select(i))
