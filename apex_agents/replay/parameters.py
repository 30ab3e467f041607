"""Parameters travel through a table of the replay server: the learner publishes, others read.

Horgan et al. 2018, algorithm 1, lines 2 and 13.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from acme import core, types

from apex_agents.replay.messages import LAST_STEP, PARAMETER_VERSION, PARAMETERS, read_latest
from apex_agents.replay.publishing import Publisher
from apex_agents.replay.tables import table_name
from apex_agents.waits import Waiting

# The name under which a `VariableClient` gets the learner steps of the parameters.
_LEARNER_STEPS = "learner_steps"


class ParameterPublisher:
    """Publishes parameters without holding up the learner; see `Publisher`."""

    def __init__(self, client: reverb.Client, check_period_seconds: float = 1.0):
        """Start the publishing thread, which checks periodically that the server has parameters."""
        tables = (PARAMETERS, PARAMETER_VERSION)
        self._publisher = Publisher(client, *tables, check_period_seconds=check_period_seconds)
        self.check = self._publisher.check
        self.flush = self._publisher.flush
        self.close = self._publisher.close

    def publish(self, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int) -> None:
        """Hand over those after so many learner steps, arrays by name, in place of any that wait.

        Raises:
          KeyError: the server has no such table.
          ValueError: its table is for other parameters.
        """
        groups = {name: list(group) for name, group in variables.items()}
        steps = np.asarray(learner_steps, np.int64)
        # The version comes last: its readers find these parameters, or later ones.
        version = np.asarray(secrets.randbits(63), np.int64)
        self._publisher.publish({_LEARNER_STEPS: steps, "variables": groups}, version)


class ParameterSource(core.VariableSource):
    """Reads published parameters; works with `acme.tf.variable_utils.VariableClient`.

    Attributes:
      is_run_over: whether the learner has finished, as of the last time the server was asked.
    """

    def __init__(
        self,
        clients: reverb.Client | Sequence[reverb.Client],
        should_stop: Callable[[], bool] = lambda: False,
        timeout_seconds: int = 5,
    ):
        """Prepare to read; nothing is read yet.

        Args:
          clients: client of the replay server, or of several: they are asked in turn until one
            answers.
          should_stop: asked while waiting for the first parameters.
          timeout_seconds: seconds to wait for the server, before parameters read earlier will do.
        """
        self._clients = [clients] if isinstance(clients, reverb.Client) else list(clients)
        self._should_stop = should_stop
        self._timeout_seconds = timeout_seconds
        self._variables: Mapping[str, list[np.ndarray]] | None = None
        self._version: int | None = None
        self.is_run_over = False
        self._steps_in_use = _AssignableNumber(-1)

    @property
    def learner_steps(self) -> int:
        """Learner steps of the parameters in use, -1 before the first.

        In use are those that `get_variables` returned last or, if a `VariableClient` has variables
        of `track`, those that it assigned last.
        """
        return self._steps_in_use.value

    def track(self, variables: Mapping[str, Sequence[tf.Variable]]) -> dict[str, Sequence[Any]]:
        """Add `learner_steps` to the variables that a `VariableClient` assigns together."""
        return {**variables, _LEARNER_STEPS: [self._steps_in_use]}

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Return the newest published arrays, one list per name, or wait for the first ones.

        While the server is away these are the last ones read.

        Raises:
          RuntimeError: the program stopped before anything was published.
        """
        self.refresh()
        with Waiting("the learner's first parameters"):
            while self._variables is None:
                if self._should_stop():
                    raise RuntimeError("The program stopped before the learner published any.")
                time.sleep(0.1)
                self.refresh()
        if _LEARNER_STEPS not in names:
            self._steps_in_use.assign(self._variables[_LEARNER_STEPS][0])
        return [self._variables[name] for name in names]

    def refresh(self) -> None:
        """Read what is new, if a server answers."""
        for client in list(self._clients):
            if self._should_stop():  # The server may be going away; a call might never return.
                return
            try:
                return self._refresh(client)
            except (RuntimeError, reverb.errors.ReverbError):
                # The next time others are asked first: waiting for this one takes long.
                self._clients.append(self._clients.pop(0))

    def _refresh(self, client: reverb.Client) -> None:
        tables = client.server_info(self._timeout_seconds)
        table = table_name(client, PARAMETER_VERSION)
        end = tables.get(table_name(client, LAST_STEP))
        self.is_run_over = end is not None and end.current_size > 0
        version = int(read_latest(client, table)) if tables[table].current_size else None
        if version is None or version == self._version:
            return
        item = read_latest(client, table_name(client, PARAMETERS))
        self._variables = {**item["variables"], _LEARNER_STEPS: [item[_LEARNER_STEPS]]}
        self._version = version


class _AssignableNumber:
    """A number that a `VariableClient` can assign; read much faster than a `tf.Variable`."""

    def __init__(self, value: int):
        self.value = value

    def assign(self, value: np.ndarray) -> None:
        self.value = int(value)


def to_arrays(variables: Mapping[str, Sequence[tf.Variable]]) -> dict[str, list[np.ndarray]]:
    """Copy variables into arrays, keeping names and order."""
    return {name: [v.numpy() for v in group] for name, group in variables.items()}


def to_finite_arrays(
    variables: Mapping[str, Sequence[tf.Variable]], learner_steps: int
) -> dict[str, list[np.ndarray]]:
    """Copy variables into arrays, keeping names and order.

    Raises:
      FloatingPointError: a variable is NaN or infinite after so many learner steps.
    """
    arrays = to_arrays(variables)
    for name, group in arrays.items():
        if not all(np.isfinite(array).all() for array in group):
            raise FloatingPointError(
                f"A variable of {name!r} is not finite after {learner_steps} learner steps."
            )
    return arrays
