"""Reads the learner's batches in a thread of its own."""

import queue
import threading
from collections.abc import Callable

import reverb
import tensorflow as tf

# One batch waits in the queue, another one for room in it.
BATCHES_IN_READER = 2
_WAIT_SECONDS = 0.1
_CLOSE_TIMEOUT_SECONDS = 1


class BatchReader:
    """Waits for batches in a thread of its own, so that an unreachable server blocks no caller.

    The first `next` starts reading.
    """

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = dataset
        self._batches: queue.Queue = queue.Queue(1)
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_forever, daemon=True)

    def next(self, should_stop: Callable[[], bool] = lambda: False) -> reverb.ReplaySample | None:
        """Wait for a batch; return None if told to stop before there is one.

        Raises:
          Exception: the error that ended the reading.
        """
        if not self._thread.is_alive() and self._error is None:
            self._thread.start()
        while not should_stop():
            try:
                return self._batches.get(timeout=_WAIT_SECONDS)
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
        try:
            while not self._closed.is_set():
                # An iterator ends when the limiter has let nothing through for a while.
                for batch in self._dataset:
                    self._hand_over(batch)
                    if self._closed.is_set():
                        return
        except Exception as error:  # Raised in the thread that waits for batches.
            self._error = error

    def _hand_over(self, batch: reverb.ReplaySample) -> None:
        while not self._closed.is_set():
            try:
                return self._batches.put(batch, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
