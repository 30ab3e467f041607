"""The queue of gradients, from workers to the learner: its table, its writer and its reader.

A worker is a node that computes gradients: an actor of A2C or A3C, or one of several learners.
"""

import collections
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.learning.update import Update
from apex_agents.replay.connections import ReplayConnections
from apex_agents.replay.dataset import read_table
from apex_agents.replay.layout import RowStream, repeat_until_sent
from apex_agents.waits import Waiting

GRADIENTS, _GRADIENTS_BFLOAT16 = GRADIENT_TABLES = ("gradients", "gradients_bfloat16")
_NUM_RECENT = 1_000


class Gradient(NamedTuple):
    """One item of the queue: the gradient of one rollout, or one batch, of a worker.

    Attributes:
      gradient: `[P]` float32, a mean over the steps of the rollout or the items of the batch, see
        `to_vector`; the table may hold it as bits of bfloat16, `[P]` uint16.
      metrics: `[M]` float32, the number of these, and means over them.
      version: `[]` int64, learner steps of the parameters with which it was computed.
      worker: `[]` int64, index of the worker, or of its first environment.
      num_workers: `[]` int64, workers of the run.
    """

    gradient: np.ndarray
    metrics: np.ndarray
    version: np.ndarray
    worker: np.ndarray
    num_workers: np.ndarray


def count_parameters(trained: Any) -> int:
    """Return the number of numbers in a nest of variables, and thus in a gradient."""
    return sum(variable.shape.num_elements() for variable in tf.nest.flatten(trained))


def make_gradient_table(
    num_parameters: int, num_metrics: int | None, queue_size: int, bfloat16: bool = False
) -> reverb.Table:
    """Build the queue, from which each gradient is read once, in the order of arrival.

    Args:
      num_parameters: P, numbers in a gradient.
      num_metrics: M, numbers that are logged; None for any number.
      queue_size: gradients in a full queue, before which workers wait.
      bfloat16: whether it holds gradients as bfloat16.
    """
    return reverb.Table(
        name=_queue_name(bfloat16),
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=queue_size,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.Queue(queue_size),
        signature=_make_signature(num_parameters, num_metrics, bfloat16),
    )


def _queue_name(bfloat16: bool) -> str:
    """Return the name of the queue: a saved one of the other type is not this one."""
    return _GRADIENTS_BFLOAT16 if bfloat16 else GRADIENTS


def _make_signature(
    num_parameters: int, num_metrics: int | None, bfloat16: bool
) -> dict[str, tf.TensorSpec]:
    gradient = tf.TensorSpec([num_parameters], tf.uint16 if bfloat16 else tf.float32)
    metrics = tf.TensorSpec([num_metrics], tf.float32)
    return Gradient(gradient, metrics, *[tf.TensorSpec([], tf.int64)] * 3)._asdict()


def make_gradient_dataset(
    client: reverb.Client, num_parameters: int, num_metrics: int, bfloat16: bool = False
) -> tf.data.Dataset:
    """Read the queue: `reverb.ReplaySample`s whose `data` is a `Gradient`; see `read_table`."""
    signature = _make_signature(num_parameters, num_metrics, bfloat16)
    dataset = read_table(client, _queue_name(bfloat16), signature, 1)

    @tf.autograph.experimental.do_not_convert  # The conversion would take half a second.
    def unpack(sample: reverb.ReplaySample) -> reverb.ReplaySample:
        gradient = Gradient(**sample.data)
        if bfloat16:
            vector = tf.cast(tf.bitcast(gradient.gradient, tf.bfloat16), tf.float32)
            gradient = gradient._replace(gradient=vector)
        return reverb.ReplaySample(sample.info, gradient)

    return dataset.map(unpack, deterministic=True)


class GradientSender:
    """Sends the gradients of one worker.

    Attributes:
      num_steps: agent steps of all gradients sent so far.
      num_items: gradients sent so far.
      num_not_finite: agent steps of gradients that were left out, NaN or infinite.
    """

    def __init__(
        self,
        client: reverb.Client,
        env_indices: Sequence[int],
        num_envs: int,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
        bfloat16: bool = False,
    ):
        """Prepare to send; the first gradient opens the stream.

        Args:
          client: client of the server with the queue.
          env_indices: indices of the worker's environments among those of all workers.
          num_envs: number of environments of all workers, of which each has as many.
          should_stop: asked while waiting for room in the queue.
          learner_steps_fn: returns the learner steps of the parameters in use.
          bfloat16: whether the queue holds gradients as bfloat16.
        """
        self._client = client
        self._worker = np.asarray(env_indices[0], np.int64)
        self._num_workers = np.asarray(num_envs // len(env_indices), np.int64)
        self.should_stop = should_stop
        self._learner_steps_fn = learner_steps_fn
        self._bfloat16 = bfloat16
        self._stream: RowStream | None = None
        self._waiting = Waiting("the queue to accept gradients")
        self.num_steps = 0
        self.num_items = 0
        self.num_not_finite = 0

    @property
    def version(self) -> int:
        """Learner steps of the parameters in use."""
        return self._learner_steps_fn()

    def send(self, gradient: np.ndarray, metrics: np.ndarray) -> bool:
        """Send a gradient of the parameters in use, and wait until the queue has those before it.

        Returns:
          Whether it counts: one that is NaN or infinite is sent as that of 0 steps, so that nobody
          waits for it.
        """
        num_steps = int(metrics[0])
        if self._bfloat16:
            gradient = gradient.astype(tf.bfloat16.as_numpy_dtype)
        is_finite = bool(np.isfinite(gradient).all())
        if not is_finite:
            self.num_not_finite += num_steps
            gradient, metrics, num_steps = np.zeros_like(gradient), np.zeros_like(metrics), 0
        if self._stream is None:
            queue = _queue_name(self._bfloat16)
            self._stream = RowStream(self._client, len(Gradient._fields) * [1], table=queue)
        if self._bfloat16:  # A writer takes no arrays of this type.
            gradient = gradient.view(np.uint16)
        version = np.asarray(self.version, np.int64)
        row = Gradient(gradient, metrics, version, self._worker, self._num_workers)
        references = self._stream.append(*row)
        self._stream.create_item(dict(zip(Gradient._fields, references, strict=True)), 1.0)
        self.num_steps += num_steps
        self.num_items += 1
        self.flush(max_pending=1)
        return is_finite

    def flush(self, max_pending: int = 0) -> None:
        """Wait until the queue has all gradients but so many, or the program stops."""
        if self._stream is not None:
            with self._waiting:
                send = functools.partial(self._stream.flush, max_pending)
                repeat_until_sent(send, self.should_stop)

    def close(self) -> None:
        """Send pending gradients, unless the program stops, and close the stream."""
        self.flush()
        if self._stream is not None:
            self._stream.close()


class GradientSource:
    """Gradients of workers: the mean of one of each worker, or each as it arrives.

    Attributes:
      description: see `learner.Source`.
      recent_samples: staleness of the newest gradients, in learner steps; None if they have none.
    """

    description = "gradients of the workers"

    def __init__(
        self,
        update: Update,
        replays: ReplayConnections,
        metric_names: Sequence[str],
        max_wait_seconds: float | None,
        max_staleness: int | None = None,
    ):
        """Compile the step; nothing is read yet.

        Args:
          update: applies the mean of gradients.
          replays: gradients as `make_gradient_dataset` gives them.
          metric_names: names of the numbers `[M]` beside a gradient; the number of steps is first.
          max_wait_seconds: seconds to wait for the other workers after the first gradient of an
            update; None: each gradient is an update.
          max_staleness: learner steps since the parameters of a gradient, above which it is left
            out; None: however old, if each is an update.
        """
        self._update = update
        self._replays = replays
        self._metric_names = metric_names
        self._max_wait_seconds = max_wait_seconds
        self._max_staleness = math.inf if max_staleness is None else max_staleness
        self._num_dropped = 0
        self.recent_samples: collections.deque[int] | None = None
        if max_wait_seconds is None:
            self.recent_samples = collections.deque(maxlen=_NUM_RECENT)
        self._present: set[int] | None = None  # Workers to wait for; None: all of them.
        signature = [tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.float32)]
        self._apply = tf.function(self._apply_mean, signature, autograph=False)
        # Workers wait for parameters: while this compiled later, their gradients would grow stale.
        self._apply.get_concrete_function()

    def take(self, learner_steps: int, should_stop: Callable[[], bool]) -> list[Gradient] | None:
        """Wait for the gradients of one update; return None if told to stop.

        Synchronous updates take one gradient of each worker, all of the newest parameters. Workers
        of which none comes within `max_wait_seconds` after the first one are not waited for, until
        they send something again.
        """
        batch: dict[int, Gradient] = {}
        deadline = float("inf")

        def should_end() -> bool:
            return should_stop() or time.monotonic() >= deadline

        while (sample := self._replays.sample(should_end)) is not None:
            vector, *numbers = sample.batches.data
            gradient = Gradient(vector, *[tensor.numpy() for tensor in numbers])
            if self._max_wait_seconds is None:
                if not gradient.metrics[0]:
                    continue
                if learner_steps - gradient.version <= self._max_staleness:
                    return [gradient]
                self._num_dropped += 1
                continue
            worker = int(gradient.worker)
            if self._present is not None:
                self._present.add(worker)
            if gradient.version != learner_steps:  # It arrived too late.
                self._num_dropped += 1
                continue
            batch[worker] = gradient
            expected = gradient.num_workers if self._present is None else len(self._present)
            if len(batch) == expected:
                break
            deadline = min(deadline, time.monotonic() + self._max_wait_seconds)
        else:
            if should_stop():
                return None
            self._present = set(batch)
        return [batch[worker] for worker in sorted(batch)]

    def learn(self, data: list[Gradient], learner_steps: int) -> dict[str, Any]:
        metrics = np.stack([gradient.metrics for gradient in data])  # `[K, M]`
        num_steps = metrics[:, 0]
        applied = self._apply(tf.stack([gradient.gradient for gradient in data]), num_steps)
        means = (num_steps @ metrics) / max(num_steps.sum(), 1)
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        staleness = [max(learner_steps - int(gradient.version), 0) for gradient in data]
        if self.recent_samples is not None:
            self.recent_samples += staleness
        return {
            **dict(zip(self._metric_names[1:], means[1:], strict=True)),
            **applied,
            "staleness_steps": float(np.mean(staleness)),
            "gradients_per_step": float(len(data)),
            "gradients_dropped": self._num_dropped,
            "num_updates": 1,
        }

    def close(self) -> None:
        self._replays.close()

    def _apply_mean(self, gradients: tf.Tensor, num_steps: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Apply the mean of gradients `[K, P]`, weighted by their numbers of steps, `[K]`.

        Without any step it is NaN, which optimizers skip and count.
        """
        weights = num_steps / tf.reduce_sum(num_steps)
        mean = tf.linalg.matvec(gradients, weights, transpose_a=True)
        return self._update.apply(from_vector(mean, self._update.trained))


def to_vector(gradients: Any, trained: Any) -> tf.Tensor:
    """Return gradients flat and side by side, `[P]`; see `Computed.gradients`."""
    flat = zip(tf.nest.flatten(gradients), tf.nest.flatten(trained), strict=True)
    parts = [tf.zeros_like(of) if part is None else part for part, of in flat]
    return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)


def from_vector(vector: tf.Tensor, trained: Any) -> Any:
    """Return the gradients of a vector `[P]` in the structure of the variables that they are of."""
    variables = tf.nest.flatten(trained)
    parts = tf.split(vector, [variable.shape.num_elements() for variable in variables])
    shaped = [tf.reshape(part, of.shape) for part, of in zip(parts, variables, strict=True)]
    return tf.nest.pack_sequence_as(trained, shaped)
