"""The learner (Horgan et al. 2018, algorithm 2), which knows nothing of the algorithm it runs."""

import atexit
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from acme import core, types
from acme.utils import loggers

from apex_agents.learning.losses import importance_weights
from apex_agents.learning.samples import RecentSamples
from apex_agents.learning.shapes import check_shapes
from apex_agents.learning.update import Update, UpdateOutput, update_in_turn
from apex_agents.replay.connections import ReplayConnections
from apex_agents.replay.flow import make_data_flow
from apex_agents.replay.parameters import to_finite_arrays
from apex_agents.replay.priorities import at_bound_fraction
from apex_agents.waits import Waiting


class ApexLearner(core.Learner):
    """Samples, updates, writes priorities back and publishes parameters.

    Attributes:
      num_steps: learner steps (updates) done so far.
      recent_samples: the newest batches.
    """

    def __init__(
        self,
        update: Update,
        dataset: tf.data.Dataset | Sequence[tf.data.Dataset],
        client: reverb.Client | Sequence[reverb.Client],
        config: Any,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Start without publishing: actors that read parameters wait for the first `publish`.

        Args:
          update: one learner step of an algorithm.
          dataset: samples as `replay.dataset.make_dataset` gives them, of each replay server.
          client: client of the replay server, or of each.
          config: the agent's settings; `batch_size`, `num_sgd_steps_per_step`, `publish_period` and
            `replay.importance_sampling_exponent` are read.
          logger: receives learner steps, metrics, updates and seconds of waiting of every `step`.
          should_stop: asked while waiting for data.
        """
        self._update = update
        sizes = (config.batch_size, config.num_sgd_steps_per_step)
        self._replays = ReplayConnections(client, dataset, *sizes)
        self._config = config
        self._logger = logger or loggers.NoOpLogger()
        self._should_stop = should_stop
        flow, ratio = make_data_flow(config), config.replay.samples_per_insert
        limits = f"{flow.min_size_field} is {flow.min_size:,}"
        limits += f", agent.replay.samples_per_insert is {ratio:g}" if ratio else ""
        self._waiting = Waiting(f"a batch of the replay ({limits})")
        # Python aborts if it exits while one of their threads is inside a call.
        atexit.register(self.close)
        self.num_steps = 0
        self.recent_samples = RecentSamples()
        # AutoGraph would take as long as importing TensorFlow, to convert all that is called.
        self._update_on_sample = tf.function(self._update_in_turn, autograph=False)

    @property
    def state(self) -> Mapping[str, Any]:
        """Everything that a checkpoint has to hold, by name."""
        return self._update.state

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]:
        """Variables that actors need, by the names under which they are published."""
        return self._update.variables

    def resume(self) -> None:
        """Continue from the number of steps in `state`, which has been restored."""
        self.num_steps = int(self._update.num_updates)

    def step(self) -> None:
        """Wait for a sample and learn from it; return without one if told to stop."""
        started = time.monotonic()
        with self._waiting:
            sample = self._replays.sample(self._should_stop)
        waiting_seconds = time.monotonic() - started
        if sample is None:
            return
        output = self._update_on_sample(sample.batches)
        priorities = output.priorities.numpy()
        self._replays.write_priorities(sample, priorities)
        self.recent_samples.add(sample.batches, output, self.num_steps)
        num_updates = self._config.num_sgd_steps_per_step
        self.num_steps += num_updates
        if self.num_steps % self._config.publish_period < num_updates:
            self.publish()
        self._logger.write(
            {
                "learner_steps": self.num_steps,
                **output.metrics,
                "num_updates": num_updates,
                "waiting_seconds": waiting_seconds,
                "priorities_at_bound_fraction": at_bound_fraction(priorities),
                "priorities_not_finite": self._replays.num_not_finite,
                "priority_batches_dropped": self._replays.num_dropped_batches,
            }
        )

    def reconnect(self, index: int, client: reverb.Client, dataset: tf.data.Dataset) -> None:
        """Continue with a replay server that has moved; it gets the parameters at once."""
        self._replays.reconnect(index, client, dataset)
        self.publish()

    def publish(self) -> None:
        """Publish the current parameters, in the background."""
        self._replays.publish(self.get_all_variables(), self.num_steps)

    def flush(self) -> None:
        """Block until the servers have all priorities and parameters handed over so far."""
        self._replays.flush()

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        arrays = self.get_all_variables()
        return [arrays[name] for name in names]

    def get_all_variables(self) -> dict[str, list[np.ndarray]]:
        """Return copies of all variables that actors need, by name.

        Raises:
          FloatingPointError: a variable is NaN or infinite, unfit to act with or to learn from.
        """
        return to_finite_arrays(self._update.variables, self.num_steps)

    def close(self) -> None:
        """Publish what was learned, unless the program stops, and write the pending priorities."""
        atexit.unregister(self.close)
        if not self._should_stop():
            self.publish()
        self._replays.close()
        self._logger.close()

    def _update_in_turn(self, sample: reverb.ReplaySample) -> UpdateOutput:
        return update_in_turn(self._update_on_batch, sample, self._config.num_sgd_steps_per_step)

    def _update_on_batch(self, batch: reverb.ReplaySample) -> UpdateOutput:
        info, exponent = batch.info, self._config.replay.importance_sampling_exponent
        weights = importance_weights(info.probability, info.table_size, exponent)
        num_updates = self._update.num_updates.read_value()
        output = self._update(batch.data, weights)
        check_shapes(weights.shape, priorities=output.priorities)
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        ages = tf.maximum(tf.cast(num_updates, tf.float32) - batch.data.learner_steps, 0.0)
        metrics = {**output.metrics, "sample_age_steps": tf.reduce_mean(ages)}
        return output._replace(metrics=metrics)
