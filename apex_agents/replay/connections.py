"""The replay servers of a run as one: batches from all, parameters to all, wherever they are.

With S servers, of which each gives an equal share of every batch, transition k of server s is
sampled with P(k) = P_s(k) / S from a replay of N = N_1 + ... + N_S transitions. The importance
weights of a batch are computed from these (N P)^-beta. With beta = 1 the weighted update is in
expectation that of one server; below 1, those of a server with a smaller sum count for more.

A server that gives nothing for a while is left out until it does: the others fill its share.
"""

import collections
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.repeating import Repeating
from apex_agents.replay.dataset import BatchReader
from apex_agents.replay.messages import (
    PARAMETER_VERSION,
    PARAMETERS,
    Publisher,
    parameter_messages,
)
from apex_agents.replay.priorities import PriorityWriter

# Seconds for which the others' shares wait for that of one server; longer for the first ones, since
# servers are filled at different speeds.
_PATIENCE_SECONDS, _FIRST_PATIENCE_SECONDS = 1.0, 60.0
# Shares in a row that an absent server has to have ready before it is waited for again.
_NUM_READY = 3
_POLL_SECONDS, _IDLE_SECONDS = 0.1, 0.005
_FOLLOW_SECONDS = 0.5

# The client of a run's only replay server, or of each of several.
Clients: TypeAlias = reverb.Client | Sequence[reverb.Client]


class _Part(Protocol):
    def close(self) -> None:
        """End, if possible soon."""


P = TypeVar("P", bound=_Part)


class PerServer(Generic[P]):
    """A part for each replay server of a run, such as a reader.

    On a cluster a server may move to another host. `clients` then returns a new client for it, with
    which its part is made anew in the background.
    """

    def __init__(self, clients: Clients, make: Callable[[reverb.Client, P | None], P]):
        """Make the parts.

        Args:
          clients: client of the only server, or of each at its present address.
          make: makes the part of a server, given the part before it moved.
        """
        self._clients = [clients] if isinstance(clients, reverb.Client) else clients
        self._make = make
        self._used = list(self._clients)
        self._parts = [make(client, None) for client in self._used]
        self._following = Repeating("Following replays", self._follow, _FOLLOW_SECONDS)

    def __iter__(self) -> Iterator[P]:
        return iter(self._parts)

    def close(self) -> None:
        """Close all parts at the same time, since servers may be away."""
        self._following.close(timeout_seconds=0)
        threads = [threading.Thread(target=part.close) for part in self._parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _follow(self) -> None:
        for index, client in enumerate(self._clients):
            if client is not self._used[index]:
                before = self._parts[index]
                self._parts[index], self._used[index] = self._make(client, before), client
                # It may be inside a call to a host that is gone.
                threading.Thread(target=before.close, daemon=True).start()


class ReplayConnection:
    """The connection with one server.

    Attributes:
      reader: reads its share of batches.
      priorities: writes priorities back to it.
      is_absent: whether it gave nothing lately, and is not waited for.
    """

    def __init__(self, client: reverb.Client, dataset: tf.data.Dataset, num_rows: int):
        """Read samples of `num_rows` transitions from a dataset; nothing is read yet."""
        self.reader = BatchReader(dataset, num_rows)
        self.priorities = PriorityWriter(client)
        self.is_absent = False
        self._num_ready = 0

    def take(self, seconds: float) -> reverb.ReplaySample | None:
        """Wait for its next share for so many seconds; one that is absent has to be ready.

        Returns:
          What it gives to K batches, `[K * B / S, ...]` each; None if nothing came.
        """
        batches = self.reader.poll(0.0 if self.is_absent else seconds)
        if batches is None:
            self._num_ready = 0
            return None
        self._num_ready += 1
        self.is_absent = self.is_absent and self._num_ready < _NUM_READY
        return batches

    def close(self) -> None:
        """Write what is pending if the server answers soon, and end the threads."""
        self.reader.close()
        self.priorities.close()


class Sample(NamedTuple):
    """K batches in a row, and where they are from.

    Attributes:
      batches: `[K * B, ...]` each; probabilities and sizes are those of all servers together.
      shares: the server and the keys, `[K * B / S]`, of each share, in the order of its rows within
        a batch.
    """

    batches: reverb.ReplaySample
    shares: Sequence[tuple[ReplayConnection, tf.Tensor]]


class ReplayConnections:
    """Samples batches from all servers, and returns priorities to the one they came from."""

    def __init__(
        self,
        clients: Clients,
        make_dataset: Callable[[reverb.Client], tf.data.Dataset],
        batch_size: int = 0,
        num_batches: int = 1,
    ):
        """Connect to the servers; nothing is read yet.

        Args:
          clients: client of the only server, or of each; see `PerServer`.
          make_dataset: makes the samples of a server; see `replay.dataset.make_dataset`.
          batch_size: B, rows per batch; with 0, samples are taken as they come.
          num_batches: K, batches that are handed over together.
        """
        self._num_servers = 1 if isinstance(clients, reverb.Client) else len(clients)
        self._num_rows = num_batches * batch_size // self._num_servers
        self._num_batches = num_batches
        self._make_dataset = make_dataset
        self._has_sampled = False
        self._first = 0  # Index of the server that is asked first.
        self._servers = PerServer(clients, self._connect)

    @property
    def num_not_finite(self) -> int:
        """Priorities left out because they were NaN or infinite."""
        return sum(server.priorities.num_not_finite for server in self._servers)

    @property
    def num_dropped_batches(self) -> int:
        """Batches of priorities that were not written."""
        return sum(server.priorities.num_dropped_batches for server in self._servers)

    def sample(self, should_stop: Callable[[], bool] = lambda: False) -> Sample | None:
        """Wait for K batches; return None if told to stop before there are any.

        Raises:
          Exception: the error that ended the reading of a server.
        """
        shares: list[tuple[ReplayConnection, reverb.ReplaySample]] = []
        waiting, num_before, deadline = self._in_turn(), 0, math.inf
        while not should_stop():
            servers = [*self._servers]  # One may have moved.
            for index in [*waiting]:
                if (share := servers[index].take(_POLL_SECONDS)) is not None:
                    shares.append((servers[index], share))
                    waiting.remove(index)
                if len(shares) == len(servers):
                    self._has_sampled = True
                    return self._merge(shares)
            if len(shares) > num_before:
                patience = _PATIENCE_SECONDS if self._has_sampled else _FIRST_PATIENCE_SECONDS
                deadline = min(deadline, time.monotonic() + patience)
            for index in waiting:
                servers[index].is_absent |= time.monotonic() >= deadline
            if all(servers[index].is_absent for index in waiting):
                # Servers with data fill the shares of absent ones, in turn.
                if len(shares) == num_before:
                    time.sleep(_IDLE_SECONDS)
                self._has_sampled |= bool(shares)
                self._first = (self._first + 1) % len(servers)
                waiting, num_before, deadline = self._in_turn(), len(shares), math.inf
        return None

    def write_priorities(self, sample: Sample, priorities: np.ndarray) -> None:
        """Hand over the new priorities of a sample, `[K * B]`, each to the server it came from."""
        rows = priorities.reshape(self._num_batches, len(sample.shares), -1)
        for index, (server, keys) in enumerate(sample.shares):
            server.priorities.write(keys.numpy(), rows[:, index].ravel())

    def flush(self) -> None:
        """Block until the servers have all priorities handed over so far."""
        for server in self._servers:
            server.priorities.flush()

    def close(self) -> None:
        """Write what is pending if the servers answer soon, and end the threads."""
        self._servers.close()

    def _connect(self, client: reverb.Client, before: ReplayConnection | None) -> ReplayConnection:
        """Connect to a server, which may have moved."""
        server = ReplayConnection(client, self._make_dataset(client), self._num_rows)
        if before is not None:
            server.priorities.num_not_finite = before.priorities.num_not_finite
            server.priorities.num_dropped_batches = before.priorities.num_dropped_batches
        return server

    def _in_turn(self) -> list[int]:
        """Return the indices of all servers, beginning with `_first`."""
        return [*range(self._first, self._num_servers), *range(self._first)]

    def _merge(self, shares: Sequence[tuple[ReplayConnection, reverb.ReplaySample]]) -> Sample:
        keys = [(server, batches.info.key) for server, batches in shares]
        if len(shares) == 1:
            return Sample(shares[0][1], keys)
        sizes = {id(server): batches.info.table_size[-1] for server, batches in shares}
        counts = collections.Counter(id(server) for server, _ in shares)
        total = tf.add_n(list(sizes.values()))
        parts = []
        for server, (info, data) in shares:
            probability = info.probability * (counts[id(server)] / len(shares))
            size = tf.fill(tf.shape(info.table_size), total)
            info = info._replace(probability=probability, table_size=size)
            parts.append(reverb.ReplaySample(info, data))
        return Sample(tf.nest.map_structure(self._interleave, *parts), keys)

    def _interleave(self, *rows: tf.Tensor) -> tf.Tensor:
        """Put shares of K batches together, so that each batch has rows of each share."""
        num_batches = self._num_batches
        by_batch = [tf.reshape(r, [num_batches, -1, *r.shape[1:]]) for r in rows]
        return tf.reshape(tf.concat(by_batch, axis=1), [-1, *rows[0].shape[1:]])


class ParameterPublisher:
    """Publishes parameters on all servers, in the background; one that has moved gets them, too."""

    def __init__(self, clients: Clients, tables: Sequence[str] = ()):
        """Publish nothing yet; `PerServer` explains the clients.

        Further tables are those of messages that are sent before the parameters.
        """
        self._tables = (*tables, PARAMETERS, PARAMETER_VERSION)
        self._published: tuple[Any, ...] = ()  # The newest messages.
        self._publishers = PerServer(clients, self._connect)

    def publish(
        self, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int, *messages: Any
    ) -> None:
        """Hand over parameters after so many learner steps, and messages for further tables.

        Raises as `Publisher.publish` does.
        """
        self._published = (*messages, *parameter_messages(variables, learner_steps))
        for publisher in self._publishers:
            publisher.publish(*self._published)

    def check(self) -> None:
        """Raise the error of a thread that sends, if there is one."""
        for publisher in self._publishers:
            publisher.check()

    def flush(self) -> None:
        """Block until the servers have what was handed over so far."""
        for publisher in self._publishers:
            publisher.flush()

    def close(self) -> None:
        """Send what is pending if the servers answer soon, and end the threads."""
        self._publishers.close()

    def _connect(self, client: reverb.Client, before: Publisher | None) -> Publisher:
        publisher = Publisher(client, *self._tables)
        if self._published:
            publisher.publish(*self._published)
        return publisher
