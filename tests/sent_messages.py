"""Messages to other nodes, sent as they are, for tests of what receives them."""

from __future__ import annotations

import numpy as np
import reverb

from apex_agents.replay.messages import EVALUATION, LAST_STEP, Evaluation


def report_evaluation(client: reverb.Client, evaluation: Evaluation) -> None:
    """Reports an evaluation to the learner."""
    client.insert(evaluation, {EVALUATION: 1.0})


def report_last_step(client: reverb.Client, learner_steps: int) -> None:
    """Tells actors and evaluator that the run is over."""
    client.insert(np.asarray(learner_steps, np.int64), {LAST_STEP: 1.0})
