"""Reads prioritized batches ahead (Horgan et al. 2018, algorithm 2, line 4, and appendix F)."""

import queue
import threading
from typing import Any

import reverb
import tensorflow as tf

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.layout import Layout
from apex_agents.replay.tables import TRANSITIONS, table_name

_RATE_LIMITER_TIMEOUT_MS = 500
# One batch waits in the queue, another one for room in it.
_BATCHES_IN_READER = 2
_WAIT_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_CLOSE_TIMEOUT_SECONDS = 1


def read_table(
    client: reverb.Client, table: str, signature: Any, max_in_flight: int, dataset: Any = None
) -> tf.data.Dataset:
    """Sample a table for as long as its limiter allows.

    The server is asked nothing before the first iteration, so that it may be away.

    Args:
      client: client of the replay server.
      table: name of the table, as in a run without an id.
      signature: nest of `tf.TensorSpec` of an item, such as its columns by name.
      max_in_flight: items that the server sends before the first of them is taken.
      dataset: class of the dataset, by default `reverb.TrajectoryDataset`.

    Returns:
      `reverb.ReplaySample`s of single items. An iterator ends when the limiter lets nothing through
      for half a second.
    """
    return (dataset or reverb.TrajectoryDataset)(
        server_address=client.server_address,
        table=table_name(client, table),
        dtypes=tf.nest.map_structure(lambda column: column.dtype, signature),
        shapes=tf.nest.map_structure(lambda column: column.shape, signature),
        max_in_flight_samples_per_worker=max_in_flight,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=_RATE_LIMITER_TIMEOUT_MS,
    )


def make_dataset(
    client: reverb.Client,
    replay: ReplayConfig,
    batch_size: int,
    layout: Layout,
    batches_per_sample: int = 1,
) -> tf.data.Dataset:
    """Sample batches of the table of transitions; see `read_table`.

    Args:
      client: client of the replay server.
      replay: number of batches to read ahead.
      batch_size: B, items per batch.
      layout: layout of the table's items.
      batches_per_sample: K, batches that are handed over together.

    Returns:
      `reverb.ReplaySample`s whose `info` is a `reverb.SampleInfo` and `data` is what the layout
      unpacks, `[K * B, ...]` each. The last sample of an iterator may have fewer rows, which
      `BatchReader` completes.
    """
    sample_size = batches_per_sample * batch_size
    prefetch = max(replay.prefetch_batches // batches_per_sample, 1)
    # Batches in Reverb's own buffer are among those read ahead; more would make priorities staler.
    in_flight = min(2, prefetch)
    dataset = read_table(client, TRANSITIONS, layout.signature, in_flight * sample_size)

    @tf.autograph.experimental.do_not_convert  # The conversion would take half a second.
    def unpack(sample: reverb.ReplaySample) -> reverb.ReplaySample:
        return reverb.ReplaySample(sample.info, layout.unpack(sample.data))

    shapes = tf.nest.map_structure(lambda leaf: leaf.shape, dataset.element_spec)
    padded = shapes._replace(data=layout.padded_shapes)
    dataset = dataset.padded_batch(sample_size, padded).map(unpack, deterministic=True)
    ahead = prefetch - in_flight - _BATCHES_IN_READER
    return dataset.prefetch(ahead) if ahead > 0 else dataset


class BatchReader:
    """Waits for batches in a separate thread, so that an unreachable server blocks no caller.

    The first `poll` starts reading.
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

    def poll(self, seconds: float) -> reverb.ReplaySample | None:
        """Wait for a batch, None if there is none after so many seconds.

        Raises:
          Exception: the error that ended the reading.
        """
        if self._closed.is_set():  # By the thread that has put another reader in its place.
            return None
        if self._thread.ident is None:  # It has not been started.
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
