"""Parameters travel through a table of the replay server: the learner publishes, others read.

Nobody asks the learner for anything, so it is never interrupted, and actors know one address.
Horgan et al. 2018, algorithm 1, lines 2 and 13.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import reverb
import tensorflow as tf
from acme import core, types

from apex_agents.replay.client import table_name
from apex_agents.replay.messages import PARAMETERS

_SERVER_TIMEOUT_SECONDS = 5
_CHECK_PERIOD_SECONDS = 1.0
_CLOSE_TIMEOUT_SECONDS = 1
_RETRY_SECONDS = 0.2


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
    client.insert(item, {table_name(client, PARAMETERS): 1.0})


class ParameterPublisher:
    """Publishes without holding up its caller, and again when a new server has no parameters."""

    def __init__(self, client: reverb.Client):
        """Start the publishing thread."""
        self._client = client
        self._latest: tuple[Mapping[str, Sequence[np.ndarray]], int] | None = None
        self._num_received = 0
        self._num_published = 0  # What was replaced before its turn counts as well.
        self._error: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._publish_forever, daemon=True)
        self._thread.start()

    def publish(self, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int) -> None:
        """Hand over new parameters, in place of any that still wait; see `publish_parameters`.

        Raises:
          ValueError: the table on the server is not for such parameters, or is not there.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            self._latest = (variables, learner_steps)
            self._num_received += 1
            self._changed.notify_all()

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Block until what was handed over is published, or for as long as allowed."""
        with self._changed:
            last = self._num_received
            self._changed.wait_for(
                lambda: self._closed or self._num_published >= last, timeout_seconds
            )

    def close(self) -> None:
        """Publish what waits if the server answers soon, and end the thread."""
        self.flush(_CLOSE_TIMEOUT_SECONDS)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(2 * _CLOSE_TIMEOUT_SECONDS)

    def _publish_forever(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(self._has_work, _CHECK_PERIOD_SECONDS)
                latest, num_received = self._latest, self._num_received
            if latest is None or self._closed:
                continue
            try:
                if num_received > self._num_published or self._is_table_empty():
                    publish_parameters(self._client, *latest)
            except (RuntimeError, reverb.errors.ReverbError):
                time.sleep(_RETRY_SECONDS)  # The server went away: a new one has an empty table.
                continue
            except Exception as error:  # Not the server's state, but a mistake: for the caller.
                with self._changed:
                    self._error = error
                    self._closed = True
            with self._changed:
                self._num_published = num_received
                self._changed.notify_all()

    def _has_work(self) -> bool:
        return self._closed or self._num_received > self._num_published

    def _is_table_empty(self) -> bool:
        info = self._client.server_info(_CLOSE_TIMEOUT_SECONDS)
        return info[table_name(self._client, PARAMETERS)].current_size == 0


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
        self._table = table_name(client, PARAMETERS)
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
            table = self._client.server_info(_SERVER_TIMEOUT_SECONDS)[self._table]
            version = table.rate_limiter_info.insert_stats.completed
            if table.current_size == 0 or version == self._version:
                return
            sample = next(
                iter(
                    self._client.sample(
                        self._table, emit_timesteps=False, unpack_as_table_signature=True
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
