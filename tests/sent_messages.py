"""Messages to other nodes, sent as they are, for tests of what receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import reverb

from apex_agents.replay.messages import (
    ACTOR_STEPS,
    EVALUATION,
    LAST_STEP,
    PARAMETER_VERSION,
    PARAMETERS,
    Evaluation,
    parameter_messages,
)
from apex_agents.replay.tables import table_name


def publish_parameters(
    client: reverb.Client, variables: Mapping[str, Sequence[np.ndarray]], learner_steps: int
) -> None:
    """Replaces the published parameters by those after `learner_steps`, arrays by name."""
    messages = parameter_messages(variables, learner_steps)
    for table, message in zip((PARAMETERS, PARAMETER_VERSION), messages, strict=True):
        client.insert(message, {table_name(client, table): 1.0})


def report_evaluation(client: reverb.Client, evaluation: Evaluation) -> None:
    """Reports an evaluation to the learner."""
    client.insert(evaluation, {EVALUATION: 1.0})


def publish_actor_steps(client: reverb.Client, *counts: int) -> None:
    """Replaces the steps of the actors of a server."""
    client.insert(np.array(counts, np.int64), {ACTOR_STEPS: 1.0})


def report_last_step(client: reverb.Client, learner_steps: int) -> None:
    """Tells actors and evaluator that the run is over."""
    client.insert(np.asarray(learner_steps, np.int64), {LAST_STEP: 1.0})
