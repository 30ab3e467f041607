"""The learner (Horgan et al. 2018, algorithm 2), which knows nothing of the algorithm it runs."""

import atexit
import collections
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import reverb
import tensorflow as tf
from acme import core, types
from acme.utils import loggers

from apex_agents.learning.losses import check_shapes, importance_weights
from apex_agents.learning.update import Computed, Update, update_in_turn, update_on_batch
from apex_agents.replay.connections import ParameterPublisher, ReplayConnections, Sample
from apex_agents.replay.messages import to_arrays
from apex_agents.replay.priorities import at_bound_fraction
from apex_agents.replay.tables import make_data_flow
from apex_agents.waits import Waiting

# Transitions enough for a histogram; batches that follow each other are alike.
_NUM_BATCHES = 16


class SampledBatch(NamedTuple):
    """A sample that was learned from, for logs of what the replay holds.

    Attributes:
      info: keys, probabilities, priorities and so on when it was sampled.
      acted_with: learner steps of the parameters with which the actions were chosen.
      td_error: `|td error|`, the new priorities.
      learner_steps: learner steps done before it.
    """

    info: reverb.SampleInfo
    acted_with: tf.Tensor
    td_error: tf.Tensor
    learner_steps: int


class Source(Protocol):
    """Data to learn from: samples of replays (`ReplaySource`), or gradients of workers.

    Attributes:
      description: name of the data, for messages about a long wait.
      recent_samples: newest batches, or staleness of gradients, for logs; may be None.
    """

    description: str

    @property
    def recent_samples(self) -> Sequence[Any] | None: ...

    def take(self, learner_steps: int, should_stop: Callable[[], bool]) -> Any:
        """Wait for data of one learner step or several; return None if told to stop.

        Args:
          learner_steps: learner steps done so far.
          should_stop: asked while waiting.
        """

    def learn(self, data: Any, learner_steps: int) -> Mapping[str, Any]:
        """Update the networks with data of `take`; return values to log, `num_updates` among them.

        Args:
          data: result of `take`.
          learner_steps: learner steps done before.
        """

    def close(self) -> None:
        """Send what is pending, if the servers answer soon, and end."""


class ApexLearner(core.Learner):
    """Learns from a source, counts, logs and publishes parameters.

    Attributes:
      num_steps: learner steps (updates) done so far, the version of the parameters.
    """

    def __init__(
        self,
        update: Update,
        source: Source,
        publisher: ParameterPublisher,
        publish_period: int = 1,
        logger: loggers.Logger | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Start without publishing: actors that read parameters wait for the first `publish`.

        Args:
          update: the update of an algorithm, which the source calls; its variables are published.
          source: data to learn from.
          publisher: publishes the parameters.
          publish_period: learner steps between two publications.
          logger: receives learner steps, metrics, updates and seconds of waiting of every `step`.
          should_stop: asked while waiting for data.
        """
        self._update = update
        self._source = source
        self._publisher = publisher
        self._publish_period = publish_period
        self._logger = logger or loggers.NoOpLogger()
        self._should_stop = should_stop
        self._waiting = Waiting(source.description)
        # One call of TensorFlow, not one for each variable.
        self._read_variables = tf.function(
            lambda: {name: [v.read_value() for v in of] for name, of in update.variables.items()},
            autograph=False,
        )
        # Python aborts if it exits while one of the source's threads is inside a call.
        atexit.register(self.close)
        self.num_steps = 0

    @property
    def recent_samples(self) -> Sequence[SampledBatch] | None:
        """The newest batches; None for a source without transitions."""
        return self._source.recent_samples

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
        """Wait for data and learn from it; return without it if told to stop."""
        started = time.monotonic()
        with self._waiting:
            data = self._source.take(self.num_steps, self._should_stop_waiting)
        waiting_seconds = time.monotonic() - started
        if data is None:
            return
        values = self._source.learn(data, self.num_steps)
        self.num_steps += values["num_updates"]
        if self.num_steps % self._publish_period < values["num_updates"]:
            self.publish()
        self._logger.write(
            {"learner_steps": self.num_steps, **values, "waiting_seconds": waiting_seconds}
        )

    def publish(self) -> None:
        """Publish the current parameters, in the background."""
        self._publisher.publish(self.get_all_variables(), self.num_steps)

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        arrays = self.get_all_variables()
        return [arrays[name] for name in names]

    def get_all_variables(self) -> dict[str, list[np.ndarray]]:
        """Return copies of all variables that actors need, by name.

        Raises:
          FloatingPointError: a variable is NaN or infinite, unfit to act with or to learn from.
        """
        arrays = to_arrays(self._read_variables())
        for name, group in arrays.items():
            if not all(np.isfinite(array).all() for array in group):
                raise FloatingPointError(
                    f"A variable of {name!r} is not finite after {self.num_steps} learner steps."
                )
        return arrays

    def close(self) -> None:
        """Publish the last parameters, unless the program stops, and close the connections."""
        atexit.unregister(self.close)
        if not self._should_stop():
            self.publish()
        self._source.close()
        self._publisher.close()
        self._logger.close()

    def _should_stop_waiting(self) -> bool:
        self._publisher.check()
        return self._should_stop()


class ReplaySource:
    """Samples of prioritized replays, to which new priorities are written back.

    Attributes:
      description: see `Source`; it names the limits of the replay.
      recent_samples: the newest batches.
    """

    def __init__(self, learn: Callable[[Any], Any], replays: ReplayConnections, config: Any):
        """Prepare to sample; nothing is read yet.

        Args:
          learn: learns from a sample, as what `make_update_on_sample` makes does.
          replays: samples of `config.num_sgd_steps_per_step` batches.
          config: the agent's settings; `num_sgd_steps_per_step` and `replay` are read.
        """
        self._learn = learn
        self._replays = replays
        self._num_updates = config.num_sgd_steps_per_step
        flow, ratio = make_data_flow(config), config.replay.samples_per_insert
        limits = f"{flow.min_size_field} is {flow.min_size:,}"
        limits += f", agent.replay.samples_per_insert is {ratio:g}" if ratio else ""
        self.description = f"a batch of the replay ({limits})"
        self.recent_samples: collections.deque[SampledBatch] = collections.deque(
            maxlen=_NUM_BATCHES
        )

    def take(self, learner_steps: int, should_stop: Callable[[], bool]) -> Sample | None:
        del learner_steps
        return self._replays.sample(should_stop)

    def learn(self, data: Sample, learner_steps: int) -> dict[str, Any]:
        output = self._learn(data.batches)
        priorities = output.priorities.numpy()
        self._replays.write_priorities(data, priorities)
        info, transitions = data.batches
        self.recent_samples.append(
            SampledBatch(info, transitions.learner_steps, output.priorities, learner_steps)
        )
        return {
            **output.metrics,
            "num_updates": self._num_updates,
            "priorities_at_bound_fraction": at_bound_fraction(priorities),
            "priorities_not_finite": self._replays.num_not_finite,
            "priority_batches_dropped": self._replays.num_dropped_batches,
        }

    def close(self) -> None:
        self._replays.close()


def make_update_on_sample(update: Update, config: Any) -> Any:
    """Make the compiled function of a learner step: the updates on the batches of a sample.

    Args:
      update: the update of one batch.
      config: the agent's settings; `num_sgd_steps_per_step` and `replay` are read.

    Returns:
      A `tf.function` from a `reverb.ReplaySample`, `[K * B, ...]`, to a `Computed`.
    """
    learn = weigh_batches(functools.partial(update_on_batch, update), update.num_updates, config)
    # AutoGraph would take as long as importing TensorFlow, to convert all that is called.
    return tf.function(
        lambda sample: update_in_turn(learn, sample, config.num_sgd_steps_per_step),
        autograph=False,
    )


def weigh_batches(
    learn: Callable[[Any, tf.Tensor], Computed], num_updates: tf.Variable, config: Any
) -> Callable[[reverb.ReplaySample], Computed]:
    """Make a function of samples from one of batches and importance weights, `[B]`.

    It adds the age of the sample in learner steps, of which there were `num_updates`, to the
    metrics. The agent's settings `config` have the exponent of the weights.
    """
    exponent = config.replay.importance_sampling_exponent

    def learn_weighted(sample: reverb.ReplaySample) -> Computed:
        weights = importance_weights(sample.info.probability, sample.info.table_size, exponent)
        steps = tf.cast(num_updates.read_value(), tf.float32)
        computed = learn(sample.data, weights)
        check_shapes(weights.shape, priorities=computed.priorities)
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        ages = tf.maximum(steps - sample.data.learner_steps, 0.0)
        metrics = {**computed.metrics, "sample_age_steps": tf.reduce_mean(ages)}
        return computed._replace(metrics=metrics)

    return learn_weighted
