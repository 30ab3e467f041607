"""Tests of the sizes that the replay's settings give its table."""

from __future__ import annotations

import pytest

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.tables import make_data_flow


@pytest.mark.parametrize(("replicas", "expected"), [(1, 100), (3, 33), (8, 12), (101, 1)])
def test_a_full_replay_is_large_enough_to_learn_from(replicas, expected):
    agent = ApexDQNConfig(replay=ReplayConfig(max_size=100, min_size=100, replicas=replicas))
    flow = make_data_flow(agent)
    assert flow.min_size == flow.min_steps == expected
    assert flow.min_size * replicas <= max(agent.replay.max_size, replicas)
