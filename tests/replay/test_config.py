"""Tests of which settings of the replay are refused."""

from __future__ import annotations

import pytest

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.flow import make_data_flow


def test_defaults_and_the_limits_of_what_is_allowed_are_valid():
    ReplayConfig().validate()
    ReplayConfig(
        max_size=1, min_size=1, priority_exponent=0, importance_sampling_exponent=0
    ).validate()
    ReplayConfig(insert_batch=1, max_in_flight=1, samples_per_insert=0.1).validate()


@pytest.mark.parametrize(("replicas", "expected"), [(1, 100), (3, 33), (8, 12), (101, 1)])
def test_a_full_replay_is_large_enough_to_learn_from(replicas, expected):
    agent = ApexDQNConfig(replay=ReplayConfig(max_size=100, min_size=100, replicas=replicas))
    flow = make_data_flow(agent)
    assert flow.min_size == expected
    assert flow.count_items(flow.min_size) <= max(agent.replay.max_size, replicas)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ReplayConfig(max_size=0), "replay.max_size is 0; it has to be between 1 and 2147483647."),
        (
            ReplayConfig(min_size=-1),
            "replay.min_size is -1; it has to be between 1 and 2147483647.",
        ),
        (ReplayConfig(replicas=0), "replay.replicas is 0; it has to be between 1 and 100."),
        (
            ReplayConfig(insert_batch=0),
            "replay.insert_batch is 0; it has to be between 1 and 1000000.",
        ),
        (
            ReplayConfig(prefetch_batches=0),
            "replay.prefetch_batches is 0; it has to be between 1 and 1000.",
        ),
        (
            ReplayConfig(samples_per_insert=0.0),
            "replay.samples_per_insert is 0.0; it has to be greater than 0.",
        ),
        (
            ReplayConfig(samples_per_insert_tolerance_rate=0.0),
            "replay.samples_per_insert_tolerance_rate is 0.0; it has to be greater than 0.",
        ),
        (
            ReplayConfig(importance_sampling_exponent=1.5),
            "replay.importance_sampling_exponent is 1.5; it has to be between 0 and 1.",
        ),
        (
            ReplayConfig(priority_exponent=-0.4),
            "replay.priority_exponent is -0.4; it has to be between 0 and 10.",
        ),
        (
            ReplayConfig(max_size=10, min_size=11),
            "replay.min_size is 11; it has to be at most max_size (10).",
        ),
        (
            ReplayConfig(insert_batch=50, max_in_flight=49),
            "replay.max_in_flight is 49; it has to be at least insert_batch (50).",
        ),
    ],
)
def test_config_errors(config, message):
    with pytest.raises(ValueError) as error:
        config.validate()
    assert str(error.value) == message
