"""Reads the learner's batches in a thread of its own."""

import queue
import threading
from collections.abc import Callable

import reverb
import tensorflow as tf

# One batch waits in the queue, another one for room in it.
BATCHES_IN_READER = 2
_WAIT_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_CLOSE_TIMEOUT_SECONDS = 1


class BatchReader:
    """Waits for batches in a thread of its own, so that an unreachable server blocks no caller.

    The first `next` starts reading.
    """

    def __init__(self, dataset: tf.data.Dataset, batch_size: int = 0):
        """Take batches of `batch_size` rows; smaller ones are put together."""
        self._dataset = dataset
        self._batch_size = batch_size
        self._rest: reverb.ReplaySample | None = None  # Too few rows for a batch.
        self._batches: queue.Queue = queue.Queue(1)
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_forever, daemon=True)

    def next(self, should_stop: Callable[[], bool] = lambda: False) -> reverb.ReplaySample | None:
        """Wait for a batch; return None if told to stop before there is one; raises as `poll`."""
        while not should_stop():
            if (batch := self.poll(_WAIT_SECONDS)) is not None:
                return batch
        return None

    def poll(self, seconds: float) -> reverb.ReplaySample | None:
        """Wait for a batch, None if there is none after so many seconds.

        Raises:
          Exception: the error that ended the reading.
        """
        if not self._thread.is_alive() and self._error is None:
            self._thread.start()
        try:
            return self._batches.get(timeout=seconds)
        except queue.Empty:
            if self._error is not None:
                raise self._error from None
        return None

    def close(self) -> None:
        """End the thread, if the server answers soon."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_SECONDS)

    def _read_forever(self) -> None:
        while not self._closed.is_set() and self._error is None:
            try:
                # An iterator ends when the limiter has let nothing through for a while. With slow
                # environments this happens within most batches.
                for batch in self._dataset:
                    if (whole := self._complete(batch)) is not None:
                        self._hand_over(whole)
                    if self._closed.is_set():
                        return
            except (tf.errors.CancelledError, tf.errors.UnavailableError):
                self._closed.wait(_RETRY_SECONDS)  # The server stops: another may follow.
            except Exception as error:  # Raised in the thread that waits for batches.
                self._error = error

    def _complete(self, batch: reverb.ReplaySample) -> reverb.ReplaySample | None:
        """Return a whole batch, or None while there are rows for a part of one."""
        if not self._batch_size or _num_rows(batch) >= self._batch_size:
            return batch
        if self._rest is not None:
            batch = tf.nest.map_structure(lambda *rows: tf.concat(rows, 0), self._rest, batch)
        if _num_rows(batch) < self._batch_size:
            self._rest = batch
            return None
        self._rest = tf.nest.map_structure(lambda rows: rows[self._batch_size :], batch)
        return tf.nest.map_structure(lambda rows: rows[: self._batch_size], batch)

    def _hand_over(self, batch: reverb.ReplaySample) -> None:
        while not self._closed.is_set():
            try:
                return self._batches.put(batch, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue


def _num_rows(batch: reverb.ReplaySample) -> int:
    return tf.nest.flatten(batch)[0].shape[0]
