"""What the newest updates had, for histograms: sampled transitions, or gradients of workers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.learning.gradients import AppliedGradient
from apex_agents.learning.learner import SampledBatch
from apex_agents.metrics import columns


class SampledTransitions(NamedTuple):
    """Transitions of the newest batches, `[N]` each.

    Attributes:
      priority: priority in the replay when the transition was sampled.
      td_error: `|td error|`, the new priority.
      age_steps: learner steps since the parameters with which the action was chosen.
      times_sampled: number of times that the transition has been sampled by then.
      weight: 1 / (number of transitions in the replay * probability of being sampled), whose mean
        over many samples is 1.
    """

    priority: np.ndarray
    td_error: np.ndarray
    age_steps: np.ndarray
    times_sampled: np.ndarray
    weight: np.ndarray


def read_samples(batches: Sequence[SampledBatch]) -> SampledTransitions:
    """Return the transitions of batches, of which there has to be at least one."""
    by_quantity = zip(*map(_read_batch, batches), strict=True)
    return SampledTransitions(*[np.concatenate(parts) for parts in by_quantity])


def _read_batch(batch: SampledBatch) -> SampledTransitions:
    probability = np.asarray(batch.info.probability, np.float64)
    return SampledTransitions(
        priority=np.asarray(batch.info.priority),
        td_error=np.asarray(batch.td_error),
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        age_steps=np.maximum(batch.learner_steps - np.asarray(batch.acted_with), 0),
        times_sampled=np.asarray(batch.info.times_sampled),
        weight=1 / (np.asarray(batch.info.table_size) * probability),
    )


def read_quantities(
    samples: Sequence[Any],
) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Return the quantities of batches or gradients, of which there has to be one, and weights.

    Returns:
      Values by the quantity's name, `[N]` each, and how many transitions of the replay, or
      gradients, each of them stands for, `[N]`.
    """
    if isinstance(samples[0], AppliedGradient):
        staleness = np.array([gradient.staleness_steps for gradient in samples])
        return {columns.STALENESS_STEPS: staleness}, np.ones(len(staleness))
    transitions = read_samples(samples)._asdict()
    weight = transitions.pop("weight")
    return transitions, weight
