"""Messages between nodes, such as the newest parameters.

Each kind has a table of one item, the newest; only reports of actor steps are a queue. Parameters
travel through the replay server (Horgan et al. 2018, algorithm 1, lines 2 and 13): the learner
publishes, others read.
"""

import functools
import itertools
import secrets
import threading
import time
import types
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf
from acme import core
from acme.types import NestedArray

from apex_agents.replay.tables import if_reachable, table_name
from apex_agents.waits import Waiting

PARAMETERS = "parameters"
PARAMETER_VERSION = "parameter_version"
EVALUATION = "evaluation"
STEP_REPORTS = "step_reports"
ACTOR_STEPS = "actor_steps"
LAST_STEP = "last_step"
MESSAGES = (PARAMETERS, PARAMETER_VERSION, EVALUATION, STEP_REPORTS, ACTOR_STEPS, LAST_STEP)

_CLOSE_TIMEOUT_SECONDS = 1
_ASK_TIMEOUT_SECONDS = 2
_RETRY_SECONDS = 0.2
_MAX_REPORTS = 10_000  # More than arrive while a server is too busy to read them.
# In a message of parameters, and for a `VariableClient`: after how many learner steps they are.
LEARNER_STEPS = "learner_steps"


class Evaluation(NamedTuple):
    """One evaluation, as the evaluator reports it to the learner; every field a scalar."""

    mean_return: np.ndarray  # Mean unclipped return over the episodes.
    standard_error: np.ndarray  # Standard error of that mean.
    num_episodes: np.ndarray
    learner_steps: np.ndarray  # Learner steps of the evaluated parameters.
    actor_steps: np.ndarray  # Steps that all actors had reported when it began.


def make_message_tables(variables: Mapping[str, Sequence[tf.Variable]]) -> list[reverb.Table]:
    """Build the tables of all messages, whatever the agent.

    Args:
      variables: variables that the learner will publish.
    """
    integer = tf.TensorSpec([], tf.int64)
    signatures = {
        PARAMETERS: parameter_signature(variables),
        PARAMETER_VERSION: integer,
        EVALUATION: Evaluation(*[tf.TensorSpec([], tf.float64) for _ in Evaluation._fields]),
        ACTOR_STEPS: tf.TensorSpec([None], tf.int64),  # Steps of each actor since the run began.
        LAST_STEP: integer,  # Learner steps of the run's last parameters, sent at its end.
    }
    latest = [make_latest_table(name, signature) for name, signature in signatures.items()]
    pair = tf.TensorSpec([2], tf.int64)  # The index of an actor and its steps since the run began.
    reports = make_latest_table(STEP_REPORTS, pair).replace(
        sampler=reverb.selectors.Fifo(), max_size=_MAX_REPORTS, max_times_sampled=1
    )
    return [*latest, reports]


def parameter_signature(variables: Mapping[str, Sequence[tf.Variable]]) -> dict[str, Any]:
    """Return the signature of parameters with the learner steps after which they are published."""
    groups = {
        name: [tf.TensorSpec(variable.shape, variable.dtype) for variable in group]
        for name, group in variables.items()
    }
    return {LEARNER_STEPS: tf.TensorSpec([], tf.int64), "variables": groups}


def make_latest_table(name: str, signature: Any) -> reverb.Table:
    """Build the table of a message, the newest one, which stays when it is read."""
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Lifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )


def follower_table(index: int) -> str:
    """Return the name of the table in which a follower finds each publication at most once."""
    return f"{PARAMETERS}_{index}"


def find_followers(client: reverb.Client, tables: Container[str]) -> list[str]:
    """Return the tables of followers among those of a server, by the names that they have there."""
    names = (table_name(client, follower_table(index)) for index in itertools.count())
    return list(itertools.takewhile(lambda name: name in tables, names))


def read_latest(client: reverb.Client, table: str) -> Any:
    """Return the item of a table that is not empty, by the name that it has in the run."""
    samples = client.sample(table, emit_timesteps=False, unpack_as_table_signature=True)
    return tf.nest.map_structure(lambda column: column[0], next(iter(samples)).data)


class Publisher:
    """Sends the newest messages in a separate thread, and again when a new server has none.

    A server that is away holds up no caller. It is asked for its tables first, with a timeout,
    since inserting into one that is gone would never return.
    """

    def __init__(self, client: reverb.Client, *tables: str, check_period_seconds: float = 1.0):
        """Start the thread, which checks periodically that the server's tables have a message.

        What is sent to `PARAMETERS` goes to the tables of followers, too, which may be empty: a
        blocking reader removes the message.
        """
        self._client = client
        self._tables = [table_name(client, table) for table in tables]
        self._check_period_seconds = check_period_seconds
        self._latest: Sequence[Any] = ()
        self._in_tables: dict[str, Any] = {}  # The message that each table has got last.
        self._num_received = 0
        self._num_sent = 0  # Includes those that were replaced before they were sent.
        self._error: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send_forever, daemon=True)
        self._thread.start()

    def publish(self, *messages: Any) -> None:
        """Hand over new messages, in place of any that still wait.

        Args:
          messages: a nest of arrays with the signature of each table; sent in this order. What the
            server has already, the same object, is not sent again.

        Raises:
          KeyError: the server has no such table.
          ValueError: its table is for other messages.
        """
        self.check()
        with self._changed:
            self._latest = messages
            self._num_received += 1
            self._changed.notify_all()

    def check(self) -> None:
        """Raise the error of the sending thread, if there is one."""
        if self._error is not None:
            raise self._error

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Block until all that was handed over is sent, or until the timeout."""
        with self._changed:
            last = self._num_received
            self._changed.wait_for(lambda: self._closed or self._num_sent >= last, timeout_seconds)

    def close(self) -> None:
        """Send what waits if the server answers soon, and end the thread."""
        self.flush(_CLOSE_TIMEOUT_SECONDS)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(2 * _CLOSE_TIMEOUT_SECONDS)

    def _send_forever(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._num_received > self._num_sent,
                    self._check_period_seconds,
                )
                latest, num_received = self._latest, self._num_received
            if not latest or self._closed:
                continue
            try:
                if not if_reachable(functools.partial(self._send, latest)):
                    time.sleep(_RETRY_SECONDS)  # The server went away: a new one has empty tables.
                    continue
            except Exception as error:  # A mistake of the caller, raised by its next `publish`.
                with self._changed:
                    self._error = error
                    self._closed = True
            with self._changed:
                self._num_sent = num_received
                self._changed.notify_all()

    def _send(self, messages: Sequence[Any]) -> bool:
        """Send messages that the server has not; return that it has answered."""
        found = self._client.server_info(_ASK_TIMEOUT_SECONDS)
        for table, message in zip(self._tables, messages, strict=True):
            if found[table].current_size == 0 or message is not self._in_tables.get(table):
                is_followed = table == table_name(self._client, PARAMETERS)
                followers = find_followers(self._client, found) if is_followed else []
                self._client.insert(message, dict.fromkeys([table, *followers], 1.0))
                self._in_tables[table] = message
        return True


def parameter_messages(
    variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int
) -> tuple[Any, Any]:
    """Return the messages for `PARAMETERS` and `PARAMETER_VERSION`, to be sent in this order.

    Readers of the version find these parameters, or later ones. It is drawn: a count would begin
    anew with a new server.

    Args:
      variables: arrays by name, as the tables have them.
      learner_steps: learner steps after which they are published.
    """
    groups = {name: list(group) for name, group in variables.items()}
    message = {LEARNER_STEPS: np.asarray(learner_steps, np.int64), "variables": groups}
    return message, np.asarray(secrets.randbits(63), np.int64)


class ParameterSource(core.VariableSource):
    """Reads published parameters; works with `acme.tf.variable_utils.VariableClient`.

    Attributes:
      is_run_over: whether the learner has finished, as of the last time the server was asked.
      learner_steps: learner steps of the parameters in use, -1 before the first. In use are those
        that `get_variables` returned last or, if a `VariableClient` has variables of `track`, those
        that it assigned last.
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
        self.learner_steps = -1

    @property
    def newest_steps(self) -> int:
        """Learner steps of the newest parameters that were read, -1 before the first."""
        return -1 if self._variables is None else int(self._variables[LEARNER_STEPS][0])

    def track(self, variables: Mapping[str, Sequence[tf.Variable]]) -> dict[str, Sequence[Any]]:
        """Add `learner_steps` to the variables that a `VariableClient` assigns together."""
        # All that is asked of a variable is `assign`; a `tf.Variable` is read much more slowly.
        return {**variables, LEARNER_STEPS: [types.SimpleNamespace(assign=self._use)]}

    def get_variables(self, names: Sequence[str]) -> list[NestedArray]:
        """Return the newest published arrays or tensors, a list per name, or wait for the first.

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
        if LEARNER_STEPS not in names:
            self._use(self._variables[LEARNER_STEPS][0])
        return [self._variables[name] for name in names]

    def close(self) -> None:
        """End threads that read; there are none."""

    def refresh(self) -> None:
        """Read what is new, if a server answers."""
        for client in list(self._clients):
            if self._should_stop():  # The server may be going away; a call might never return.
                return
            if if_reachable(functools.partial(self._refresh, client)):
                return
            # The next time others are asked first: waiting for this one takes long.
            self._clients.append(self._clients.pop(0))

    def _refresh(self, client: reverb.Client) -> bool:
        """Read what is new on a server; return that it has answered."""
        self._read(client, client.server_info(self._timeout_seconds))
        return True

    def _read(self, client: reverb.Client, tables: Mapping[str, Any]) -> None:
        table = table_name(client, PARAMETER_VERSION)
        end = tables.get(table_name(client, LAST_STEP))
        self.is_run_over = end is not None and end.current_size > 0
        version = int(read_latest(client, table)) if tables[table].current_size else None
        if version not in (None, self._version):
            self._hold(read_latest(client, table_name(client, PARAMETERS)), version)

    def _hold(self, message: Any, version: int | None) -> None:
        self._version = version
        self._variables = {**message["variables"], LEARNER_STEPS: [message[LEARNER_STEPS]]}

    def _use(self, learner_steps: np.ndarray) -> None:
        self.learner_steps = int(learner_steps)


def to_arrays(variables: Mapping[str, Sequence[Any]]) -> dict[str, list[np.ndarray]]:
    """Copy variables or tensors into arrays, keeping names and order."""
    return {name: [v.numpy() for v in group] for name, group in variables.items()}
