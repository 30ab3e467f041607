"""Parameters travel through a table of the replay server: the learner publishes, others read.

Nobody asks the learner for anything, so it is never interrupted, and actors know one address.
Horgan et al. 2018, algorithm 1, lines 2 and 13.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import reverb
import tensorflow as tf
from acme import core, types

from apex_agents.replay.tables import PARAMETERS

_SERVER_TIMEOUT_SECONDS = 5


def publish_parameters(
    client: reverb.Client, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int
) -> None:
    """Replace the published parameters.

    Args:
      client: connected to the replay server.
      variables: arrays by the name under which actors ask for them.
      learner_steps: updates that led to these parameters.
    """
    item = {
        "learner_steps": np.asarray(learner_steps, np.int64),
        "variables": {name: list(group) for name, group in variables.items()},
    }
    client.insert(item, {PARAMETERS: 1.0})


class ParameterSource(core.VariableSource):
    """Reads published parameters; works with `acme.tf.variable_utils.VariableClient`.

    Attributes:
      learner_steps: learner steps of the parameters read last, -1 before the first.
    """

    def __init__(self, client: reverb.Client, should_stop: Callable[[], bool] = lambda: False):
        """Remember whom to ask.

        Args:
          client: connected to the replay server.
          should_stop: asked while waiting for parameters that nobody has published yet.
        """
        self._client = client
        self._should_stop = should_stop
        self._variables: Mapping[str, list[np.ndarray]] | None = None
        self._version = 0
        self.learner_steps = -1

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Return the newest published parameters, or the last ones read while the server is away.

        Waits only as long as there have never been any.

        Args:
          names: which groups to return.

        Returns:
          One list of arrays per name.

        Raises:
          RuntimeError: the program stopped before anything was published.
        """
        self._refresh()
        while self._variables is None:
            if self._should_stop():
                raise RuntimeError("The program stopped before the learner published parameters.")
            time.sleep(0.1)
            self._refresh()
        return [self._variables[name] for name in names]

    def _refresh(self) -> None:
        if self._should_stop():  # The server may be going away; a call to it might never return.
            return
        try:
            table = self._client.server_info(_SERVER_TIMEOUT_SECONDS)[PARAMETERS]
            version = table.rate_limiter_info.insert_stats.completed
            if table.current_size == 0 or version == self._version:
                return
            sample = next(
                iter(
                    self._client.sample(
                        PARAMETERS, emit_timesteps=False, unpack_as_table_signature=True
                    )
                )
            )
        except (RuntimeError, reverb.errors.ReverbError):
            return
        variables = sample.data["variables"]
        self._variables = {name: [a[0] for a in group] for name, group in variables.items()}
        self.learner_steps = int(sample.data["learner_steps"][0])
        self._version = version


def to_arrays(variables: Mapping[str, Sequence[tf.Variable]]) -> dict[str, list[np.ndarray]]:
    """Copy variables into arrays, keeping names and order."""
    return {name: [v.numpy() for v in group] for name, group in variables.items()}
