"""Which environments and configs the builder accepts."""

import re

import numpy as np
import pytest
from dm_env import specs

from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec

VECTOR = specs.Array((4,), np.float32)


def make_spec(actions: specs.Array) -> EnvironmentSpec:
    return EnvironmentSpec(VECTOR, actions, specs.Array((), np.float32), None)


@pytest.mark.parametrize("size", [1, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_that_fit(size, dtype):
    actions = specs.BoundedArray((size,), dtype, -1.0, 1.0)
    ApexDPGBuilder(ApexDPGConfig()).check_environment(make_spec(actions))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (specs.DiscreteArray(3), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.int32, -1, 1), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.int64, -1, 1), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.uint8, 0, 1), "actions that are float vectors"),
        (specs.BoundedArray((2, 2), np.float32, -1.0, 1.0), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.float32, -2.0, 2.0), "actions in [-1, 1]"),
        (specs.BoundedArray((2,), np.float32, [-1.0, 0.0], 1.0), "actions in [-1, 1]"),
        (specs.BoundedArray((2,), np.float32, [-1.0, -np.inf], 1.0), "actions in [-1, 1]"),
        (specs.BoundedArray((2,), np.float32, -1.0, [1.0, np.inf]), "actions in [-1, 1]"),
        (specs.Array((2,), np.float32), "actions in [-1, 1]"),
    ],
)
def test_actions_that_do_not_fit(actions, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ApexDPGBuilder(ApexDPGConfig()).check_environment(make_spec(actions))


def test_images_are_refused():
    images = specs.BoundedArray((96, 96, 3), np.uint8, 0, 255)
    with pytest.raises(ValueError, match="images"):
        ApexDPGBuilder(ApexDPGConfig()).check_environment(SPEC._replace(observations=images))


SPEC = make_spec(specs.BoundedArray((2,), np.float32, -1.0, 1.0))


def test_actors_differ_in_noise_and_not_in_what_the_learner_gives_them():
    builder = ApexDPGBuilder(ApexDPGConfig())
    observation = np.ones([1, 4], np.float32)
    outputs = [builder.make_policy(SPEC, [0], 1, seed)(observation) for seed in (1, 1, 2)]
    first, again, other = (output.action.tolist() for output in outputs)
    assert first == again != other
    # Initial networks follow from the seed, too.
    assert outputs[0].value == outputs[1].value != outputs[2].value


def test_config_of_the_other_agent_is_refused():
    for builder, config in ((ApexDPGBuilder, ApexDQNConfig), (ApexDQNBuilder, ApexDPGConfig)):
        with pytest.raises(ValueError, match=f"'{config.__name__}'"):
            builder(config())
