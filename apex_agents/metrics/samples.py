"""What the newest updates had, for histograms: sampled transitions, or gradients of workers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from apex_agents.learning.learner import SampledBatch
from apex_agents.metrics import columns


def read_quantities(samples: Sequence[Any]) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Join the newest samples of a learner, of which there has to be at least one.

    Of transitions there are these quantities:

    - `priority`: priority in the replay when the transition was sampled;
    - `td_error`: `|td error|`, the new priority;
    - `age_steps`: learner steps since the parameters with which the action was chosen;
    - `times_sampled`: number of times that the transition had been sampled by then.

    Args:
      samples: batches, or how stale each applied gradient was, in learner steps.

    Returns:
      Values by the quantity's name, `[N]` each, and how many transitions of the replay, or
      gradients, each of them stands for, `[N]`: 1 / (number of transitions in the replay *
      probability of being sampled), whose mean over many samples is 1.
    """
    if not isinstance(samples[0], SampledBatch):
        return {columns.STALENESS_STEPS: np.array(samples)}, np.ones(len(samples))
    batches = [_read_batch(batch) for batch in samples]
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    weights = joined.pop("weight")
    return joined, weights


def _read_batch(batch: SampledBatch) -> Mapping[str, np.ndarray]:
    probability = np.asarray(batch.info.probability, np.float64)
    return {
        "priority": np.asarray(batch.info.priority),
        "td_error": np.asarray(batch.td_error),
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        "age_steps": np.maximum(batch.learner_steps - np.asarray(batch.acted_with), 0),
        "times_sampled": np.asarray(batch.info.times_sampled),
        "weight": 1 / (np.asarray(batch.info.table_size) * probability),
    }
