"""The newest batches: priorities, ages, and how often their transitions have been sampled.

Although sampling prefers high priorities, they also show what the replay holds: a transition that
was sampled with probability P stands for 1 / P transitions.
"""

import collections
from typing import Any, NamedTuple

import numpy as np
import reverb

from apex_agents.learning.update import UpdateOutput

# Transitions enough for a histogram; batches that follow each other are alike.
_NUM_BATCHES = 16


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


class RecentSamples:
    """The newest batches of a learner."""

    def __init__(self) -> None:
        self._batches: collections.deque = collections.deque(maxlen=_NUM_BATCHES)

    def add(self, sample: reverb.ReplaySample, output: UpdateOutput, learner_steps: int) -> None:
        """Keep the tensors of a batch and of the update that followed these learner steps."""
        self._batches.append((sample.info, sample.data.learner_steps, output, learner_steps))

    def collect(self) -> SampledTransitions:
        """Return the transitions of the newest batches, of which there has to be at least one."""
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
        # A learner that resumed from a checkpoint is behind the parameters it published before.
        age_steps=np.maximum(learner_steps - np.asarray(acted_with), 0),
        times_sampled=np.asarray(info.times_sampled),
        weight=1 / (np.asarray(info.table_size) * probability),
    )
