"""Publishes the newest messages of a kind on a replay server, for as long as there is one."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import reverb

from apex_agents.replay.tables import table_name

_CLOSE_TIMEOUT_SECONDS = 1
_ASK_TIMEOUT_SECONDS = 2
_RETRY_SECONDS = 0.2


class Publisher:
    """Sends the newest messages in a thread of its own, and again when a new server has none.

    A server that is away holds up no caller. It is asked for its tables first, with a timeout,
    since inserting into one that is gone would never return.
    """

    def __init__(self, client: reverb.Client, *tables: str, check_period_seconds: float = 1.0):
        """Start the thread, which checks periodically that the server's tables have a message."""
        self._client = client
        self._tables = [table_name(client, table) for table in tables]
        self._check_period_seconds = check_period_seconds
        self._latest: Sequence[Any] = ()
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
          messages: a nest of arrays with the signature of each table; sent in this order.

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
                found = self._client.server_info(_ASK_TIMEOUT_SECONDS)
                is_missing = any(found[table].current_size == 0 for table in self._tables)
                if num_received > self._num_sent or is_missing:
                    for table, message in zip(self._tables, latest, strict=True):
                        self._client.insert(message, {table: 1.0})
            except (RuntimeError, reverb.errors.ReverbError):
                time.sleep(_RETRY_SECONDS)  # The server went away: a new one has an empty table.
                continue
            except Exception as error:  # A mistake of the caller, raised by its next `publish`.
                with self._changed:
                    self._error = error
                    self._closed = True
            with self._changed:
                self._num_sent = num_received
                self._changed.notify_all()
