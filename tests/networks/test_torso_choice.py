"""Tests of the torso that fits an environment by itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations
from apex_agents.networks.torso_choice import fit_torso, torso_warning

AUTO = ApexDQNConfig(torso="auto", frame_stack=0, mlp_hidden_sizes=(32,), stream_hidden_size=16)
DQN, SMALL = ((32, 64, 64), (8, 4, 3), (4, 2, 1)), ((16,), (3,), (1,))


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


VECTOR, PLACE = spaces.Box(-1, 1, (4,)), spaces.Discrete(3, start=1)
MINIGRID = spaces.Dict({"direction": spaces.Discrete(4), "image": image(7, 7, 3)})


def make_spec(space: spaces.Space) -> EnvironmentSpec:
    actions = convert_actions(spaces.Discrete(3))
    return EnvironmentSpec(convert_observations(space)[0], actions, None, None)


FITTING = {
    "vector": (VECTOR, 0, None),
    "place": (PLACE, 0, None),
    "vectors": (spaces.Dict({"a": VECTOR, "b": PLACE}), 0, None),
    "stacked vectors": (spaces.Box(-1, 1, (4, 3)), 4, None),
    "atari": (image(210, 160, 3), 0, DQN),
    "least for DQN's": (image(36, 36), 0, DQN),
    "less": (image(35, 36), 0, SMALL),
    "channels first": (image(3, 40, 40), 0, DQN),
    "minigrid": (image(7, 7, 3), 0, SMALL),
    "stack": (image(4, 84, 84), 4, DQN),
    "too small": (image(2, 9), 0, None),
    "dict": (MINIGRID, 0, SMALL),
    "tuple": (spaces.Tuple([VECTOR, image(64, 64, 3), image(5, 5)]), 0, DQN),
    "stacks in a dict": (spaces.Dict({"a": image(4, 40, 40, 1), "b": VECTOR}), 0, DQN),
    "dict with one that is too small": (spaces.Dict({"a": image(2, 2), "b": VECTOR}), 0, SMALL),
}


@pytest.mark.parametrize(("space", "frame_stack", "convolutions"), FITTING.values(), ids=FITTING)
def test_the_torso_that_fits(space, frame_stack, convolutions):
    config, spec = dataclasses.replace(AUTO, frame_stack=frame_stack), make_spec(space)
    fitted = fit_torso(config, spec)
    assert config.torso == "auto"
    assert fitted.torso == ("conv" if convolutions else "mlp")
    sizes = fitted.conv_channels, fitted.conv_kernel_sizes, fitted.conv_strides
    assert sizes == (convolutions or SMALL)
    ApexDQNBuilder(config).check_environment(spec)
    # The network is that of the fitted config, which is the one that is recorded.
    networks = [ApexDQNBuilder(each).make_networks(spec) for each in (config, fitted)]
    shapes = [{v.name: v.shape for v in network.variables} for network in networks]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("key", ["direction", "image"])
def test_values_depend_on_each_part(key):
    spec, convert = make_spec(MINIGRID), convert_observations(MINIGRID)[1]
    network = ApexDQNBuilder(AUTO).make_networks(spec)
    observation = {"direction": 1, "image": np.full((7, 7, 3), 9, np.uint8)}
    other = {"direction": 2, "image": np.full((7, 7, 3), 200, np.uint8)}
    batch = [convert(observation), convert({**observation, key: other[key]})]
    values = network(tf.constant(np.stack(batch))).numpy()
    assert np.abs(values[0] - values[1]).max() > 1e-4


def test_convolutions_of_the_users_are_kept():
    own = dataclasses.replace(AUTO, conv_channels=(8,), conv_kernel_sizes=(5,))
    fitted = fit_torso(own, make_spec(image(84, 84)))
    assert (fitted.torso, fitted.conv_channels, fitted.conv_kernel_sizes) == ("conv", (8,), (5,))


@pytest.mark.parametrize(
    "config",
    [ApexDQNConfig(), A2CConfig(torso="mlp"), A2CConfig(torso="nets:make"), ApexDPGConfig()],
)
def test_a_torso_that_is_named_is_kept(config):
    assert fit_torso(config, make_spec(image(84, 84))) is config


@pytest.mark.parametrize("torso", ["mlp", "atari"])
def test_a_torso_that_takes_no_parts_is_refused(torso):
    builder = ApexDQNBuilder(dataclasses.replace(AUTO, torso=torso))
    with pytest.raises(ValueError, match=r"\(4,\), \(7, 7, 3\).*agent\.torso='auto'"):
        builder.check_environment(make_spec(MINIGRID))


@pytest.mark.parametrize(
    ("torso", "space", "is_warned"),
    [
        ("mlp", image(210, 160, 3), True),
        ("mlp", image(7, 7, 3), True),
        ("mlp", image(2, 2), False),
        ("mlp", VECTOR, False),
        ("conv", image(7, 7, 3), False),
        ("auto", image(7, 7, 3), False),
    ],
)
def test_a_warning_of_layers_that_see_no_neighbours(torso, space, is_warned):
    for config in (AUTO, A2CConfig(frame_stack=0)):
        warning = torso_warning(dataclasses.replace(config, torso=torso), make_spec(space))
        assert ("agent.torso='auto'" in (warning or "")) is is_warned
