"""Which environments the builder accepts."""

import re

import numpy as np
import pytest
from dm_env import specs

from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec

FRAMES = specs.BoundedArray((4, 84, 84), np.uint8, 0, 255)
FLOAT_FRAMES = specs.BoundedArray((4, 84, 84), np.float32, 0.0, 1.0)
VECTOR = specs.Array((4,), np.float32)
DISCRETE = specs.DiscreteArray(3)
CONTINUOUS = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


def make_spec(observations, actions) -> EnvironmentSpec:
    return EnvironmentSpec(observations, actions, specs.Array((), np.float32), None)


@pytest.mark.parametrize(
    ("config", "observations"),
    [
        (ApexDQNConfig(), FRAMES),
        (ApexDQNConfig(network="mlp", frame_stack=0), VECTOR),
        (ApexDQNConfig(network="mlp", frame_stack=4), specs.Array((4, 3), np.float32)),
    ],
)
def test_environments_that_fit(config, observations):
    ApexDQNBuilder(config).check_environment(make_spec(observations, DISCRETE))


@pytest.mark.parametrize(
    ("config", "observations", "actions", "message"),
    [
        (ApexDQNConfig(), FRAMES, CONTINUOUS, "Ape-X DQN needs discrete actions"),
        (ApexDQNConfig(), VECTOR, DISCRETE, "agent.network is 'atari'"),
        (ApexDQNConfig(), FLOAT_FRAMES, DISCRETE, "agent.network is 'atari'"),
        (ApexDQNConfig(frame_stack=3), FRAMES, DISCRETE, "agent.frame_stack is 3"),
        (ApexDQNConfig(network="mlp"), VECTOR, DISCRETE, "observations are (4,)"),
        (ApexDQNConfig(frame_stack=0), FRAMES, DISCRETE, "agent.frame_stack is 0"),
    ],
)
def test_environments_that_do_not_fit(config, observations, actions, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ApexDQNBuilder(config).check_environment(make_spec(observations, actions))
