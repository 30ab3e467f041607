"""The learner of A2C and A3C: applies the gradients of the workers, publishes parameters."""

import atexit
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from acme import core, types
from acme.utils import loggers

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.gradients import Gradient
from apex_agents.actor_critic.learning import METRICS, ActorCriticUpdate
from apex_agents.replay.batch_reader import BatchReader
from apex_agents.replay.parameters import ParameterPublisher, to_finite_arrays
from apex_agents.waits import Waiting


class ActorCriticLearner(core.Learner):
    """Applies gradients, one of each worker at once (A2C) or each as it arrives (A3C).

    Attributes:
      num_steps: learner steps (updates) done so far, the version of the parameters.
      recent_samples: None, since there is no replay.
    """

    recent_samples = None

    def __init__(
        self,
        update: ActorCriticUpdate,
        dataset: tf.data.Dataset,
        publisher: ParameterPublisher,
        config: ActorCriticConfig,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Start without publishing: workers that read parameters wait for the first `publish`.

        Args:
          update: the update by gradients.
          dataset: gradients as `gradients.make_gradient_dataset` gives them.
          publisher: sends parameters to the workers.
          config: the agent's settings.
          logger: receives learner steps, metrics, updates and seconds of waiting of every `step`.
          should_stop: asked while waiting for gradients.
        """
        self._update = update
        self._reader = BatchReader(dataset)
        self._publisher = publisher
        self._config = config
        self._logger = logger or loggers.NoOpLogger()
        self._should_stop = should_stop
        # Python aborts if it exits while one of their threads is inside a call.
        atexit.register(self.close)
        self.num_steps = 0
        self._num_dropped = 0
        self._waiting = Waiting("gradients of the workers")
        self._present: set[int] | None = None  # Workers to wait for; None: all of them.
        signature = [tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.float32)]
        self._apply = tf.function(update, signature, autograph=False)
        # Workers wait for parameters: while this compiled later, their gradients would grow stale.
        self._apply.get_concrete_function()

    @property
    def state(self) -> Mapping[str, Any]:
        """Everything that a checkpoint has to hold, by name."""
        return self._update.state

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]:
        """Variables that workers need, by the names under which they are published."""
        return self._update.variables

    def resume(self) -> None:
        """Continue from the number of steps in `state`, which has been restored."""
        self.num_steps = int(self._update.num_updates)

    def step(self) -> None:
        """Wait for gradients, apply their mean and publish; return without one if told to stop."""
        started = time.monotonic()
        with self._waiting:
            batch = self._collect()
        if not batch:
            return
        waiting_seconds = time.monotonic() - started
        metrics = np.stack([gradient.metrics for gradient in batch])  # `[K, M]`
        num_steps = metrics[:, METRICS.index("num_steps")]
        gradients = np.stack([gradient.gradient for gradient in batch])
        norm = self._apply(gradients, num_steps)
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        staleness = [max(self.num_steps - int(gradient.version), 0) for gradient in batch]
        self.num_steps += 1
        self.publish()
        means = (num_steps @ metrics) / max(num_steps.sum(), 1)
        self._logger.write(
            {
                "learner_steps": self.num_steps,
                **dict(zip(METRICS[1:], means[1:], strict=True)),
                "gradient_norm": float(norm),
                "staleness_steps": float(np.mean(staleness)),
                "gradients_per_step": float(len(batch)),
                "gradients_dropped": self._num_dropped,
                "steps_skipped": int(self._update.num_skipped),
                "num_updates": 1,
                "waiting_seconds": waiting_seconds,
            }
        )

    def reconnect(self, index: int, client: reverb.Client, dataset: tf.data.Dataset) -> None:
        """Continue with a server that has moved; it gets the parameters at once."""
        del index  # There is only one.
        self._reader.close()
        self._publisher.close()
        self._reader, self._publisher = BatchReader(dataset), ParameterPublisher(client)
        self.publish()

    def publish(self) -> None:
        """Publish the current parameters, in the background."""
        self._publisher.publish(self.get_all_variables(), self.num_steps)

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        arrays = self.get_all_variables()
        return [arrays[name] for name in names]

    def get_all_variables(self) -> dict[str, list[np.ndarray]]:
        """Return copies of all variables that workers need; see `builder.Learner`."""
        return to_finite_arrays(self._update.variables, self.num_steps)

    def close(self) -> None:
        """Publish what was learned, unless the program stops, and end."""
        atexit.unregister(self.close)
        if not self._should_stop():
            self.publish()
        self._reader.close()
        self._publisher.close()
        self._logger.close()

    def _collect(self) -> list[Gradient]:
        """Return the gradients of one update, none if told to stop.

        A2C takes one gradient of each worker, all of the newest parameters. Workers of which none
        comes within `max_wait_seconds` after the first one are not waited for, until they send
        something again.
        """
        batch: dict[int, Gradient] = {}
        deadline = float("inf")

        def should_stop() -> bool:
            return self._should_stop() or time.monotonic() >= deadline

        while (sample := self._reader.next(should_stop)) is not None:
            gradient = Gradient(*[tensor.numpy() for tensor in sample.data])
            if not self._config.is_synchronous:
                return [gradient]
            worker = int(gradient.worker)
            if self._present is not None:
                self._present.add(worker)
            if gradient.version != self.num_steps:  # It arrived too late.
                self._num_dropped += 1
                continue
            batch[worker] = gradient
            expected = gradient.num_workers if self._present is None else len(self._present)
            if len(batch) == expected:
                break
            deadline = min(deadline, time.monotonic() + self._config.max_wait_seconds)
        else:
            if self._should_stop():
                return []
            self._present = set(batch)
        return [batch[worker] for worker in sorted(batch)]
