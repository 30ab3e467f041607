"""Parameters for workers that compute a gradient of every version, by a blocking read.

Such a follower has a table of its own, in which it finds each publication at most once. Variables
of target networks are published when they have moved.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.learning.update import Update
from apex_agents.replay.connections import Clients, ParameterPublisher
from apex_agents.replay.dataset import BatchReader, read_table
from apex_agents.replay.messages import (
    LEARNER_STEPS,
    PARAMETERS,
    ParameterSource,
    follower_table,
    make_latest_table,
    parameter_messages,
    parameter_signature,
    read_latest,
    to_arrays,
)
from apex_agents.replay.tables import if_reachable, table_name
from apex_agents.waits import Waiting

TARGETS = "targets"
_RETRY_SECONDS = 0.2
# Seconds without a version before the server is asked for the newest one.
_ASK_SECONDS = 1.0


def make_following_tables(tables: Sequence[reverb.Table], num_followers: int) -> list[reverb.Table]:
    """Build a table for each follower of the parameters whose table is among those given."""
    (parameters,) = [table for table in tables if table.name == PARAMETERS]
    return [
        parameters.replace(name=follower_table(i), max_times_sampled=1)
        for i in range(num_followers)
    ]


def make_target_table(update: Update) -> reverb.Table:
    """Build the table of the target networks of an update, which may have none."""
    return make_latest_table(TARGETS, parameter_signature(_target_variables(update)))


def _target_variables(update: Update) -> dict[str, Sequence[tf.Variable]]:
    return {} if update.targets is None else {TARGETS: update.targets.variables}


def _last_move(update: Update, learner_steps: int) -> int:
    return 0 if update.targets is None else update.targets.last_move(learner_steps)


class TargetPublisher(ParameterPublisher):
    """Publishes parameters, and before them the target networks, if they have moved."""

    def __init__(self, clients: Clients, update: Update):
        """Publish nothing yet; see `make_target_table`."""
        super().__init__(clients, [TARGETS])
        self._update = update
        self._moved_at: int | None = None
        self._targets: Any = None

    def publish(
        self, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int, *messages: Any
    ) -> None:
        moved_at = _last_move(self._update, learner_steps)
        if moved_at != self._moved_at:
            arrays = to_arrays(_target_variables(self._update))
            self._targets, _ = parameter_messages(arrays, moved_at)
            self._moved_at = moved_at
        super().publish(variables, learner_steps, self._targets, *messages)


class FollowingSource(ParameterSource):
    """Parameters that arrive by themselves.

    The server is asked as well, as by any `ParameterSource`, every second: it, or learning, may
    have begun again, or the run be over. The same answer counts where nobody waited for what has
    arrived, which may not be the newest version then: the reader holds a few of them.
    """

    def __init__(
        self,
        client: reverb.Client,
        index: int,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Follow the publications on a server; nothing is read yet.

        Args:
          client: client of the server, which has the table of `make_following_tables`.
          index: index of the follower.
          should_stop: asked while waiting for the first parameters.
        """
        super().__init__(client, should_stop)
        self._table = follower_table(index)
        self._reader: BatchReader | None = None  # Until the server has answered.
        self._arrived: reverb.ReplaySample | None = None
        self._ask_at = 0.0

    def await_next(self) -> None:
        """Wait until parameters arrive, for a second at most."""
        if self._arrived is None and self._reader is not None:
            self._arrived = self._reader.poll(_ASK_SECONDS)

    def refresh(self) -> None:
        """Take what has arrived since the last call."""
        arrived, self._arrived = self._arrived, None
        has_more = False
        while self._reader is not None and (sample := self._reader.poll(0.0)) is not None:
            has_more, arrived = True, sample
        if arrived is not None and arrived.data[LEARNER_STEPS] > self.newest_steps:
            # Tensors, which variables take over faster than arrays.
            self._hold(arrived.data, version=None)
        if has_more or time.monotonic() >= self._ask_at:
            super().refresh()
            self._ask_at = time.monotonic() + _ASK_SECONDS

    def close(self) -> None:
        """End the thread that reads."""
        if self._reader is not None:
            self._reader.close()

    def _read(self, client: reverb.Client, tables: Mapping[str, Any]) -> None:
        if self._reader is None:
            signature = tables[table_name(client, self._table)].signature
            self._reader = BatchReader(
                read_table(client, self._table, signature, 1, reverb.TimestepDataset)
            )
        super()._read(client, tables)


class ParameterFollower:
    """Keeps the networks of an update equal to those that were published.

    Attributes:
      learner_steps: learner steps of the parameters in use, -1 before the first.
    """

    def __init__(
        self,
        client: reverb.Client,
        source: ParameterSource,
        update: Update,
        max_wait_seconds: float | None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Follow the publications on a server; nothing is read yet.

        Args:
          client: client of the server.
          source: parameters on it, a `FollowingSource` for one that waits.
          update: update whose variables, targets and number of updates are assigned.
          max_wait_seconds: seconds to wait for a version other than the one in use; None: the
            newest one always does.
          should_stop: asked while waiting.
        """
        self._client = client
        self._update = update
        self._max_wait_seconds = max_wait_seconds
        self._should_stop = should_stop
        self._source = source
        self._moved_at: int | None = None  # Learner steps after which the targets in use had moved.
        self._waiting = Waiting("new parameters of the parameter server")
        self._await_next = getattr(source, "await_next", lambda: time.sleep(_RETRY_SECONDS))
        self.learner_steps = -1

    def take(self) -> None:
        """Assign the next version or the newest one, as the constructor says.

        Raises:
          RuntimeError: the program stopped before anything was published.
        """
        names = list(self._update.variables)
        deadline = time.monotonic() + (self._max_wait_seconds or 0.0)
        with self._waiting:
            groups = self._source.get_variables(names)
            while self._source.learner_steps == self.learner_steps:
                if self._should_stop() or time.monotonic() >= deadline:
                    return
                self._await_next()
                groups = self._source.get_variables(names)
        learner_steps = self._source.learner_steps
        _assign_all(self._update.variables, dict(zip(names, groups, strict=True)))
        self._update.num_updates.assign(learner_steps)
        if self._moved_at != _last_move(self._update, learner_steps):
            self._take_targets()
        self.learner_steps = learner_steps

    def close(self) -> None:
        """End the thread that reads."""
        self._source.close()

    def _take_targets(self) -> None:
        """Assign the newest targets: they are published before parameters, and may be newer."""
        table = table_name(self._client, TARGETS)
        while not self._should_stop():
            targets = if_reachable(lambda: read_latest(self._client, table))
            if targets is not None:
                _assign_all(_target_variables(self._update), targets["variables"])
                self._moved_at = int(targets[LEARNER_STEPS])
                return
            time.sleep(_RETRY_SECONDS)


def _assign_all(
    variables: Mapping[str, Sequence[tf.Variable]], values: Mapping[str, Sequence[Any]]
) -> None:
    for name, group in variables.items():
        for variable, value in zip(group, values[name], strict=True):
            variable.assign(value, read_value=False)
