"""One of several learners: it computes gradients of samples, which a parameter server applies.

Nair et al. 2015 ("Massively Parallel Methods for Deep Reinforcement Learning", Gorila).
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from acme.utils import loggers

from apex_agents.learning.following import ParameterFollower
from apex_agents.learning.gradients import GradientSender, to_vector
from apex_agents.learning.learner import ReplaySource, SampledBatch, weigh_batches
from apex_agents.learning.update import Computed, Update
from apex_agents.replay.connections import ReplayConnections
from apex_agents.waits import Waiting

_AT_BOUND = "priorities_at_bound_fraction"
# Losses that lead to the first running mean and deviation, and the share that a later one has.
_NUM_FIRST_LOSSES = 100
_MEAN_RATE = 0.01


def make_compute_on_sample(update: Update, config: Any) -> Any:
    """Make the compiled function that computes the gradient of a sample, `[B, ...]`.

    Args:
      update: computes the gradient of a batch.
      config: the agent's settings; `replay` is read.

    Returns:
      A `tf.function` from a `reverb.ReplaySample` to a `Computed` whose gradients are a vector; see
      `gradients.to_vector`.
    """

    def compute(batch: Any, weights: tf.Tensor) -> Computed:
        computed = update.compute(batch, weights)
        return computed._replace(gradients=to_vector(computed.gradients, update.trained))

    return tf.function(weigh_batches(compute, update.num_updates, config), autograph=False)


def metric_names(compute_on_sample: Any, samples: Any) -> list[str]:
    """Return the names of the numbers that a learner sends beside a gradient, the batch size first.

    Args:
      compute_on_sample: result of `make_compute_on_sample`.
      samples: specs of a sample, a nest.
    """
    computed = compute_on_sample.get_concrete_function(samples).structured_outputs
    return ["batch_size", *sorted(computed.metrics), _AT_BOUND]


class OutlierFilter:
    """Finds losses far above the running mean of their absolute values (Nair et al. 2015).

      |loss| > mean + num_deviations * deviation

    An outlier moves mean and deviation as any other loss does, so that losses which stay larger are
    outliers for a while only.
    """

    def __init__(self, num_deviations: float):
        """Begin without a mean: the first 100 losses are no outliers."""
        self._num_deviations = num_deviations
        self._num_losses = 0
        self._mean = 0.0
        self._variance = 0.0

    def is_outlier(self, loss: float) -> bool:
        """Return whether a loss is far above those before it, and count it among them."""
        size = abs(loss)
        if not math.isfinite(size):
            return True
        limit = self._mean + self._num_deviations * math.sqrt(self._variance)
        is_outlier = self._num_losses >= _NUM_FIRST_LOSSES and size > limit
        self._num_losses += 1
        rate = max(1 / self._num_losses, _MEAN_RATE)
        difference = size - self._mean
        self._mean += rate * difference
        self._variance = (1 - rate) * (self._variance + rate * difference**2)
        return is_outlier


class GradientLearner:
    """Follows the published parameters, and sends a gradient of each of its samples.

    Attributes:
      num_steps: learner steps of the parameters in use.
      recent_samples: the newest batches.
    """

    def __init__(  # noqa: PLR0913
        self,
        update: Update,
        replays: ReplayConnections,
        config: Any,
        follower: ParameterFollower,
        sender: GradientSender,
        outlier_filter: OutlierFilter | None = None,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Put the parts together.

        Args:
          update: computes gradients.
          replays: samples of one batch.
          config: the agent's settings.
          follower: assigns new parameters to the networks of the update.
          sender: sends the gradients.
          outlier_filter: finds gradients to leave out; None leaves out none.
          logger: receives metrics and seconds of waiting of every `step`.
          should_stop: asked while waiting.
        """
        self._compute_on_sample = make_compute_on_sample(update, config)
        self._source = ReplaySource(self._compute, replays, config)
        self._batch_size = config.batch_size
        self._follower = follower
        self._sender = sender
        self._filter = outlier_filter
        self._logger = logger or loggers.NoOpLogger()
        self._should_stop = should_stop
        self._waiting = Waiting(self._source.description)
        self._computed: Computed  # The newest gradient.
        self._num_left_out = 0

    @property
    def num_steps(self) -> int:
        return self._follower.learner_steps

    @property
    def recent_samples(self) -> Sequence[SampledBatch]:
        return self._source.recent_samples

    def step(self) -> None:
        """Take parameters and a sample, and send its gradient; return without if told to stop."""
        started_at = time.monotonic()
        self._follower.take()
        followed_at = time.monotonic()
        with self._waiting:
            sample = self._source.take(self.num_steps, self._should_stop)
        sampled_at = time.monotonic()
        if sample is None:
            return
        values = self._source.learn(sample, self.num_steps)
        computed_at = time.monotonic()
        self._num_left_out += not self._send(values[_AT_BOUND])
        self._logger.write(
            {
                **values,
                "learner_steps": self.num_steps,
                "gradients_left_out": self._num_left_out,
                "parameter_wait_seconds": followed_at - started_at,
                "waiting_seconds": sampled_at - followed_at,
                "sending_seconds": time.monotonic() - computed_at,
            }
        )

    def close(self) -> None:
        """End reading and sending."""
        self._follower.close()
        self._source.close()
        self._sender.close()
        self._logger.close()

    def _compute(self, sample: reverb.ReplaySample) -> Computed:
        self._computed = self._compute_on_sample(sample)
        return self._computed

    def _send(self, at_bound_fraction: float) -> bool:
        """Send the newest gradient, unless its loss is an outlier; return whether it counts."""
        vector, _, metrics = self._computed
        if self._filter is not None and self._filter.is_outlier(float(metrics["loss"])):
            return False
        means = [float(metrics[name]) for name in sorted(metrics)]
        numbers = np.array([self._batch_size, *means, at_bound_fraction], np.float32)
        return self._sender.send(vector.numpy(), numbers)
