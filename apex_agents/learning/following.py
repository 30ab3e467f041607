"""Parameters for several learners: each version, for those that wait for it, or the newest one.

A learner that needs each version waits in a blocking read: it has a table of its own, in which it
finds every publication once. Variables of target networks are published when they have moved.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.learning.update import Update
from apex_agents.replay.connections import ParameterPublisher
from apex_agents.replay.dataset import BatchReader, read_table
from apex_agents.replay.messages import (
    PARAMETERS,
    ParameterSource,
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
# Seconds without a version before the newest one is asked for.
_ASK_SECONDS = 1.0


def make_following_tables(update: Update, num_followers: int) -> list[reverb.Table]:
    """Build a table for each follower, and one for the target networks of an update."""
    parameters = parameter_signature(update.variables)
    return [
        *(make_latest_table(_follower_table(i), parameters, 1) for i in range(num_followers)),
        make_latest_table(TARGETS, parameter_signature(_target_variables(update))),
    ]


def following_table_names(num_followers: int) -> list[str]:
    """Return the names of these tables."""
    return [*map(_follower_table, range(num_followers)), TARGETS]


def _follower_table(index: int) -> str:
    return f"{PARAMETERS}_{index}"


def _target_variables(update: Update) -> dict[str, Sequence[tf.Variable]]:
    return {} if update.targets is None else {TARGETS: update.targets.variables}


def _last_move(update: Update, learner_steps: int) -> int:
    return 0 if update.targets is None else update.targets.last_move(learner_steps)


class FollowedPublisher(ParameterPublisher):
    """Publishes parameters for followers, too, and before them the targets, if they have moved."""

    def __init__(
        self,
        clients: reverb.Client | Sequence[reverb.Client],
        update: Update,
        num_followers: int,
    ):
        """Publish nothing yet; see `make_following_tables`."""
        super().__init__(clients, [_follower_table(i) for i in range(num_followers)], [TARGETS])
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


class ParameterFollower:
    """Keeps the networks of an update equal to those that were published.

    Attributes:
      learner_steps: learner steps of the parameters in use, -1 before the first.
    """

    def __init__(
        self,
        client: reverb.Client,
        index: int,
        update: Update,
        max_wait_seconds: float | None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Follow the publications on a server; nothing is read yet.

        Args:
          client: client of the server.
          index: index of the follower.
          update: update whose variables, targets and number of updates are assigned.
          max_wait_seconds: seconds to wait for a version after the one in use, before the newest
            one will do again; None: the newest one always does.
          should_stop: asked while waiting.
        """
        self._client = client
        self._update = update
        self._max_wait_seconds = max_wait_seconds
        self._should_stop = should_stop
        self._source = ParameterSource(client, should_stop)
        signature = parameter_signature(update.variables)
        publications = read_table(
            client, _follower_table(index), signature, 1, reverb.TimestepDataset
        )
        self._reader = BatchReader(publications)
        self._moved_at: int | None = None  # Learner steps after which the targets in use had moved.
        self._waiting = Waiting("new parameters of the parameter server")
        self.learner_steps = -1

    def take(self) -> None:
        """Assign the next version or the newest one, as the constructor says.

        Raises:
          RuntimeError: the program stopped before anything was published.
        """
        with self._waiting:
            message = self._read_next()
        self._assign(self._newest() if message is None else message)

    def close(self) -> None:
        """End the thread that reads."""
        self._reader.close()

    def _read_next(self) -> Any:
        """Return a version other than the one in use; None if there is none in time."""
        if self._max_wait_seconds is None or self.learner_steps < 0:
            return None
        deadline = time.monotonic() + self._max_wait_seconds
        while not self._should_stop() and time.monotonic() < deadline:
            sample = self._reader.poll(_ASK_SECONDS)
            # More than one waits if learning went on without this learner.
            while sample is not None and (more := self._reader.poll(0.0)) is not None:
                sample = more
            if sample is not None and sample.data["learner_steps"] > self.learner_steps:
                return sample.data
            # The reader may not have noticed yet that the server, or learning, began again.
            newest = self._newest()
            if newest["learner_steps"] != self.learner_steps:
                return newest
        return None

    def _newest(self) -> Any:
        names = list(self._update.variables)
        groups = self._source.get_variables(names)
        arrays = dict(zip(names, groups, strict=True))
        return parameter_messages(arrays, self._source.learner_steps)[0]

    def _assign(self, message: Any) -> None:
        learner_steps = int(message["learner_steps"])
        _assign_all(self._update.variables, message["variables"])
        self._update.num_updates.assign(learner_steps)
        if self._moved_at != _last_move(self._update, learner_steps):
            self._take_targets()
        self.learner_steps = learner_steps

    def _take_targets(self) -> None:
        """Assign the newest targets: they are published before parameters, and may be newer."""
        table = table_name(self._client, TARGETS)
        while not self._should_stop():
            targets = if_reachable(lambda: read_latest(self._client, table))
            if targets is not None:
                _assign_all(_target_variables(self._update), targets["variables"])
                self._moved_at = int(targets["learner_steps"])
                return
            time.sleep(_RETRY_SECONDS)


def _assign_all(
    variables: Mapping[str, Sequence[tf.Variable]], values: Mapping[str, Sequence[Any]]
) -> None:
    for name, group in variables.items():
        for variable, value in zip(group, values[name], strict=True):
            variable.assign(value)
