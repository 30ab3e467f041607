"""Transitions with observations of one number, told apart by their return."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import reverb
from dm_env import specs

from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.layout import Layout
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import pack_outcome

SPEC = EnvironmentSpec(
    observations=specs.Array((1,), np.float32),
    actions=specs.DiscreteArray(2, dtype=np.int32),
    rewards=None,
    discounts=None,
)


def add_transitions(
    client: reverb.Client, layout: Layout, priorities: Mapping[float, float], learner_steps: int = 0
) -> None:
    """Adds a transition for each return, with its priority."""
    writer, observation = layout.make_writer(client), np.zeros([1], np.float32)
    writer.begin_step(observation)
    for n_step_return, priority in priorities.items():
        outcome = pack_outcome(np.int32(1), n_step_return, 0.5, learner_steps, 1)
        writer.add_item(observation, outcome, priority)
    writer.stream.flush()
    writer.stream.close()


def read_priorities(client: reverb.Client) -> dict[float, float]:
    """Returns the priority that each transition has now, by its return."""
    samples = client.sample(TRANSITIONS, 200, emit_timesteps=False, unpack_as_table_signature=True)
    return {float(s.data["transition"][2]): float(s.info.priority) for s in samples}
