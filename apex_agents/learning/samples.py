"""What the newest batches were like: their priorities, their ages, how often they were seen.

Sampling prefers high priorities, but the replay can still be seen through it: a transition that was
sampled with probability P stands for 1 / P of those that are there.
"""

import collections
from typing import Any, NamedTuple

import numpy as np
import reverb

from apex_agents.learning.update import UpdateOutput

# Enough for a distribution: 2 batches in a row are alike.
_NUM_BATCHES = 16


class SampledTransitions(NamedTuple):
    """Some transitions that were learned from, `[N]` each.

    Attributes:
      priority: in the replay, when it was sampled.
      td_error: |td error|, the new priority.
      age_steps: learner steps since the parameters with which its action was chosen.
      times_sampled: how often it has been sampled by then.
      weight: 1 / (number of transitions in the replay * probability of being sampled); the mean
        over many samples is 1.
    """

    priority: np.ndarray
    td_error: np.ndarray
    age_steps: np.ndarray
    times_sampled: np.ndarray
    weight: np.ndarray


class RecentSamples:
    """Remembers the newest batches."""

    def __init__(self) -> None:
        """Begin with none."""
        self._batches: collections.deque = collections.deque(maxlen=_NUM_BATCHES)

    def add(self, sample: reverb.ReplaySample, output: UpdateOutput, learner_steps: int) -> None:
        """Take one batch; cheap, its tensors are only kept.

        Args:
          sample: the batch.
          output: of the update on it.
          learner_steps: updates before that one.
        """
        self._batches.append((sample.info, sample.data.learner_steps, output, learner_steps))

    def collect(self) -> SampledTransitions:
        """Return the transitions of all batches that are remembered; at least one has to be."""
        batches = [_read(*batch) for batch in self._batches]
        return SampledTransitions(
            *[np.concatenate(column) for column in zip(*batches, strict=True)]
        )


def _read(
    info: reverb.SampleInfo, acted_with: Any, output: UpdateOutput, learner_steps: int
) -> SampledTransitions:
    probability = np.asarray(info.probability, np.float64)
    return SampledTransitions(
        priority=np.asarray(info.priority),
        td_error=np.asarray(output.priorities),
        # A learner that went on from a checkpoint is behind parameters it published before.
        age_steps=np.maximum(learner_steps - np.asarray(acted_with), 0),
        times_sampled=np.asarray(info.times_sampled),
        weight=1 / (np.asarray(info.table_size) * probability),
    )
