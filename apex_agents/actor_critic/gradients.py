"""The queue of gradients, from workers to the learner: its table, its writer and its reader."""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.replay.streams import RowStream
from apex_agents.replay.tables import table_name
from apex_agents.waits import Waiting

GRADIENTS = "gradients"

_TIMEOUT_MS = 500


class Gradient(NamedTuple):
    """One item of the queue: what a worker computed from one rollout.

    Attributes:
      gradient: `[P]` float32, of all trainable variables, flat and side by side.
      metrics: `[M]` float32, see `learning.METRICS`.
      version: `[]` int64, learner steps of the parameters that acted.
      worker: `[]` int64, index of the worker's first environment.
      num_workers: `[]` int64, workers of the run.
    """

    gradient: np.ndarray
    metrics: np.ndarray
    version: np.ndarray
    worker: np.ndarray
    num_workers: np.ndarray


def make_gradient_table(
    num_parameters: int,
    num_metrics: int,
    queue_size: int,
    rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
) -> reverb.Table:
    """Build the queue, from which each gradient is read once, in the order of arrival.

    Args:
      num_parameters: P, numbers in a gradient.
      num_metrics: M, numbers that are logged.
      queue_size: gradients in a full queue, before which workers wait.
      rate_limiter: limiter in place of one that does so.
    """
    return reverb.Table(
        name=GRADIENTS,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=queue_size,
        max_times_sampled=1,
        rate_limiter=rate_limiter or reverb.rate_limiters.Queue(queue_size),
        signature=_make_signature(num_parameters, num_metrics),
    )


def _make_signature(num_parameters: int, num_metrics: int) -> dict[str, tf.TensorSpec]:
    numbers = [tf.TensorSpec([size], tf.float32) for size in (num_parameters, num_metrics)]
    return Gradient(*numbers, *[tf.TensorSpec([], tf.int64)] * 3)._asdict()


def make_gradient_dataset(
    client: reverb.Client, num_parameters: int, num_metrics: int
) -> tf.data.Dataset:
    """Read the queue: `reverb.ReplaySample`s whose `data` is a `Gradient`.

    An iterator ends when nothing has arrived for half a second. The server is asked nothing before
    the first iteration, so that it may be away.
    """
    signature = _make_signature(num_parameters, num_metrics)
    dataset = reverb.TrajectoryDataset(
        server_address=client.server_address,
        table=table_name(client, GRADIENTS),
        dtypes={name: leaf.dtype for name, leaf in signature.items()},
        shapes={name: leaf.shape for name, leaf in signature.items()},
        max_in_flight_samples_per_worker=1,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=_TIMEOUT_MS,
    )

    @tf.autograph.experimental.do_not_convert  # The conversion would take half a second.
    def unpack(sample: reverb.ReplaySample) -> reverb.ReplaySample:
        return reverb.ReplaySample(sample.info, Gradient(**sample.data))

    return dataset.map(unpack, deterministic=True)


class GradientSender:
    """Sends the gradients of one worker.

    Attributes:
      num_transitions: transitions of all gradients sent so far.
      num_not_finite: transitions of gradients that were left out, NaN or infinite.
    """

    def __init__(
        self,
        client: reverb.Client,
        env_indices: Sequence[int],
        num_envs: int,
        transitions_per_item: int,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ):
        """Prepare to send; the first gradient opens the stream.

        Args:
          client: client of the server with the queue.
          env_indices: indices of the worker's environments among those of all workers.
          num_envs: number of environments of all workers, of which each has as many.
          transitions_per_item: transitions that count as one gradient's.
          should_stop: asked while waiting for room in the queue.
          learner_steps_fn: returns the learner steps of the parameters that act.
        """
        self._client = client
        self._worker = np.asarray(env_indices[0], np.int64)
        self._num_workers = np.asarray(num_envs // len(env_indices), np.int64)
        self._transitions_per_item = transitions_per_item
        self.should_stop = should_stop
        self._learner_steps_fn = learner_steps_fn
        self._stream: RowStream | None = None
        self._waiting = Waiting("the queue to accept gradients")
        self.num_transitions = 0
        self.num_not_finite = 0

    @property
    def version(self) -> int:
        """Learner steps of the parameters that act."""
        return self._learner_steps_fn()

    def send(self, gradient: np.ndarray, metrics: np.ndarray) -> bool:
        """Send a gradient of the parameters that act, and wait until the queue has it.

        Returns:
          Whether it was sent: a gradient that is NaN or infinite is not.
        """
        if not np.isfinite(gradient).all():
            self.num_not_finite += self._transitions_per_item
            return False
        if self._stream is None:
            self._stream = RowStream(self._client, len(Gradient._fields), 1, table=GRADIENTS)
        version = np.asarray(self.version, np.int64)
        row = Gradient(gradient, metrics, version, self._worker, self._num_workers)
        references = self._stream.append(*row)
        self._stream.create_item(dict(zip(Gradient._fields, references, strict=True)), 1.0)
        self.num_transitions += self._transitions_per_item
        self.flush()
        return True

    def flush(self) -> None:
        """Wait until the queue has all gradients, or the program stops."""
        with self._waiting:
            while self._stream is not None and not self.should_stop():
                with contextlib.suppress(reverb.errors.DeadlineExceededError):
                    return self._stream.flush(timeout_ms=_TIMEOUT_MS)

    def close(self) -> None:
        """Send what is under way, unless the program stops, and close the stream."""
        self.flush()
        if self._stream is not None:
            self._stream.close()
