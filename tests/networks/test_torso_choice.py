"""Tests of the torso that fits an environment, and of user-defined ones and their mistakes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from gymnasium import spaces

from apex_agents import user_code
from apex_agents.actor_critic.config import A2CConfig
from apex_agents.actor_critic.networks import make_network as make_actor_critic
from apex_agents.checks import torso_warning
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations
from apex_agents.networks.observations import to_vector
from apex_agents.networks.torso_choice import fit_torso
from apex_agents.own_torso import is_own_torso, make_own_torso
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.r2d2.config import R2D2Config

AUTO = ApexDQNConfig(torso="auto", frame_stack=0, mlp_hidden_sizes=(32,), stream_hidden_size=16)
DQN, SMALL = ((32, 64, 64), (8, 4, 3), (4, 2, 1)), ((16,), (3,), (1,))


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


VECTOR, PLACE = spaces.Box(-1, 1, (4,)), spaces.Discrete(3, start=1)
MINIGRID = spaces.Dict({"direction": spaces.Discrete(4), "image": image(7, 7, 3)})


def make_spec(space: spaces.Space, actions: spaces.Space = PLACE) -> EnvironmentSpec:
    return EnvironmentSpec(convert_observations(space)[0], convert_actions(actions), None, None)


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


def test_the_small_torso_of_atari_is_that_of_the_a3c_paper():
    sizes = {"conv_channels": (16, 32), "conv_kernel_sizes": (8, 4), "conv_strides": (4, 2)}
    named = ApexDQNConfig(torso="atari_small")
    spelled = ApexDQNConfig(torso="conv", mlp_hidden_sizes=(), **sizes)
    spec = make_spec(image(4, 84, 84))
    networks = [ApexDQNBuilder(config).make_networks(spec) for config in (named, spelled)]
    shapes = [{v.name: v.shape for v in network.variables} for network in networks]
    assert shapes[0] == shapes[1]
    with pytest.raises(ValueError, match=r"agent\.torso is 'atari_small'.*agent\.torso='auto'"):
        ApexDQNBuilder(named).check_environment(make_spec(image(4, 64, 64)))


@pytest.mark.parametrize("key", ["direction", "image"])
def test_values_depend_on_each_part(key):
    spec, convert = make_spec(MINIGRID), convert_observations(MINIGRID)[1]
    network = ApexDQNBuilder(AUTO).make_networks(spec)
    observation = {"direction": 1, "image": np.full((7, 7, 3), 9, np.uint8)}
    other = {"direction": 2, "image": np.full((7, 7, 3), 200, np.uint8)}
    batch = [convert(observation), convert({**observation, key: other[key]})]
    values = network(tf.constant(np.stack(batch))).numpy()
    assert np.abs(values[0] - values[1]).max() > 1e-4


class Camera(snt.Module):
    """A user's torso of images."""

    def __init__(self, spec: EnvironmentSpec):
        super().__init__()
        assert spec.observations.shape == (7, 7, 3)
        self._layers = snt.Sequential([lambda pixels: to_vector(pixels, spec), snt.Linear(5)])

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        assert observations.dtype == tf.uint8
        return self._layers(observations)


@pytest.fixture
def camera(monkeypatch):
    monkeypatch.setitem(user_code.kept, "nets:make_camera", lambda spec, config: Camera(spec))
    return "nets:make_camera"


@pytest.mark.parametrize("space", [MINIGRID, spaces.Dict({"robot": MINIGRID, "b": VECTOR})])
def test_parts_may_have_torsos_of_their_own(camera, space):
    prefix = "robot." if "robot" in space.spaces else ""
    torsos = {f"{prefix}image": camera, f"{prefix}direction": "mlp"}
    spec = make_spec(space)
    network = ApexDQNBuilder(dataclasses.replace(AUTO, part_torsos=torsos)).make_networks(spec)
    shapes = {v.name: v.shape.as_list() for v in network.trainable_variables}
    assert len(shapes) == len(network.trainable_variables)
    inputs = [shape[0] for shape in shapes.values() if len(shape) == 2]
    # The pixels, the directions, then all of them: 5 of the camera, 32, and what is left.
    assert 7 * 7 * 3 in inputs and 4 in inputs and 5 + 32 + (4 if prefix else 0) in inputs
    assert not any("conv" in name for name in shapes)


def test_all_agents_have_torsos_of_parts(camera):
    spec = make_spec(MINIGRID)
    settings: Any = {"torso": "auto", "frame_stack": 0, "part_torsos": {"image": camera}}
    for network in (
        ApexDQNBuilder(ApexDQNConfig(**settings)).make_networks(spec),
        R2D2Builder(R2D2Config(**settings)).make_networks(spec),
        make_actor_critic(A2CConfig(**settings), spec),
    ):
        assert any(v.shape == [7 * 7 * 3, 5] for v in network.trainable_variables)


def test_parts_without_images_may_have_torsos(camera):
    space = spaces.Dict({"a": VECTOR, "b": PLACE})
    config = dataclasses.replace(AUTO, part_torsos={"b": "mlp"}, mlp_hidden_sizes=(6,))
    network = ApexDQNBuilder(config).make_networks(make_spec(space))
    num_places = spaces.flatdim(PLACE)
    shapes = [v.shape.as_list() for v in network.trainable_variables]
    assert [num_places, 6] in shapes and [spaces.flatdim(VECTOR) + 6, 6] in shapes


@pytest.mark.parametrize(
    ("space", "words"),
    [(MINIGRID, "'camera'.*'direction', 'image'"), (VECTOR, "observations have no parts")],
)
def test_an_unknown_part_is_refused(camera, space, words):
    config = dataclasses.replace(AUTO, part_torsos={"camera": camera})
    with pytest.raises(ValueError, match=f"agent.part_torsos.*{words}"):
        ApexDQNBuilder(config).make_networks(make_spec(space))


@pytest.mark.parametrize("settings", [{"torso": "mlp"}, {"torso": "nets:make_camera"}])
def test_part_torsos_without_an_effect_are_refused(camera, settings):
    config = dataclasses.replace(AUTO, part_torsos={"speed": "mlp"}, **settings)
    with pytest.raises(ValueError, match=r"agent\.part_torsos"):
        ApexDQNBuilder(config).check_environment(make_spec(VECTOR))


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


OBSERVATIONS = tf.zeros([2, 4])


def make(torso_fn: Callable[..., Any], observations: tf.Tensor = OBSERVATIONS) -> tf.Module:
    return make_own_torso("", "agent.torso", torso_fn, "spec", "config", observations)


def names(torso: tf.Module) -> list[str]:
    return [variable.name for variable in torso.variables]


def sequential(*layers: Any) -> Callable[..., snt.Module]:
    """Return a function that makes a torso of one layer of 3 units, and of other layers."""
    return lambda spec, config: snt.Sequential([snt.Linear(3), *layers])


def test_the_function_gets_the_spec_and_the_config():
    received = []

    def make_torso(spec: Any, config: Any) -> snt.Module:
        received.append((spec, config))
        return snt.Linear(3)

    assert make(make_torso)(tf.zeros([5, 4])).shape == (5, 3)
    assert received == [("spec", "config")]


def test_layers_of_equal_names_are_told_apart():
    torso = make(
        lambda spec, config: snt.Sequential(
            [snt.Linear(3), snt.Linear(3, with_bias=False), snt.Linear(3), snt.nets.MLP([2])]
        )
    )
    assert sorted(names(torso)) == [
        *("torso/linear/b:0", "torso/linear/w:0", "torso/linear_1/w:0"),
        *("torso/linear_2/b:0", "torso/linear_2/w:0"),
        *("torso/mlp/linear_0/b:0", "torso/mlp/linear_0/w:0"),
    ]


class Keras(snt.Module):
    """Has layers of Keras, which numbers those without a name in the whole process."""

    def __init__(self):
        super().__init__()
        self.layers = [tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)]

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        return self.layers[1](self.layers[0](observations))


def test_layers_of_keras_have_the_same_names_each_time():
    found = [sorted(names(make(lambda spec, config: Keras()))) for _ in range(3)]
    layers = ("torso/keras/dense", "torso/keras/dense_1")
    assert found == 3 * [[f"{layer}/{name}:0" for layer in layers for name in ("bias", "kernel")]]


def test_names_begin_with_the_scope():
    with tf.name_scope("policy"):
        torso = make(lambda spec, config: snt.Linear(3))
    assert sorted(names(torso)) == ["policy/torso/linear/b:0", "policy/torso/linear/w:0"]


def test_a_torso_needs_no_variables():
    assert make(lambda spec, config: snt.Flatten()).variables == ()


def test_rows_that_are_looked_up_are_trained():
    images = tf.zeros([2, 4], tf.uint8)
    torso = make(
        lambda spec, config: snt.Sequential(
            [lambda image: tf.cast(image, tf.int32), snt.Embed(5, 3), snt.Flatten()]
        ),
        images,
    )
    assert torso(images).shape == (2, 12)


class Unused(snt.Module):
    """Has a variable that its features do not depend on."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(1.0, name="scale")

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        return observations


class Hidden(snt.Module):
    """Has a layer that is no attribute, so that nothing would train it."""

    def __init__(self):
        super().__init__()
        layer = snt.Linear(3)
        self._layers = {"layer": lambda observations: layer(observations)}

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        return self._layers["layer"](observations)


def raise_error(spec: Any, config: Any) -> snt.Module:
    raise KeyError("learning")


MADE_ONCE = snt.Sequential([snt.Linear(3, name="made_once")])
MADE_ONCE(OBSERVATIONS)

MISTAKES = {
    "no arguments": (lambda: None, "raises TypeError"),
    "an error": (raise_error, "raises KeyError: 'learning'"),
    "nothing": (lambda spec, config: None, "returns None"),
    "a function": (lambda spec, config: lambda x: x, "returns <function"),
    "not callable": (lambda spec, config: tf.Module(), "returns <tensorflow"),
    "observations of another rank": (lambda s, c: snt.Conv2D(3, 3), "raises ValueError: Shape"),
    "several tensors": (sequential(lambda x: (x, x)), "gives a tuple"),
    "features of another rank": (
        sequential(lambda x: tf.reduce_sum(x, 1)),
        "maps float32 (2, 4) to float32 (2,)",
    ),
    "no batch": (
        sequential(lambda x: tf.reduce_sum(x, 0, keepdims=True)),
        "maps float32 (2, 4) to float32 (1, 3)",
    ),
    "whole numbers": (
        sequential(lambda x: tf.cast(x, tf.int32)),
        "maps float32 (2, 4) to int32 (2, 3)",
    ),
    "float64": (
        sequential(lambda x: tf.cast(x, tf.float64)),
        "maps float32 (2, 4) to float64 (2, 3)",
    ),
    "a fixed batch size": (sequential(lambda x: tf.reshape(x, [2, 3])), "raises ValueError"),
    "another batch size": (
        sequential(lambda x: tf.reshape(tf.concat([x, x], 1), [2, -1])),
        "maps float32 (3, 4) to float32 (2, 9)",
    ),
    "a decision": (sequential(lambda x: x if tf.reduce_sum(x) > 0 else -x), "raises Operator"),
    "no gradient": (sequential(lambda x: tf.round(tf.stop_gradient(x))), "'torso/linear/w'"),
    "an unused variable": (lambda spec, config: Unused(), "['torso/unused/scale']"),
    "a hidden layer": (lambda spec, config: Hidden(), "'torso/hidden/linear/w'"),
    "variables of another call": (lambda spec, config: MADE_ONCE, "'made_once/w'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(name):
    torso_fn, expected = MISTAKES[name]
    with pytest.raises(ValueError, match=rf"^torso_fn .*{re.escape(expected)}.*\[B, F\]"):
        make(torso_fn)


def test_built_in_torsos_are_not_the_users():
    assert not is_own_torso("mlp", None)
    assert is_own_torso("mlp", len)


@pytest.mark.parametrize(
    ("make", "config", "message"),
    [
        (ApexDQNBuilder, dataclasses.replace(AUTO, torso="cnn"), "torso is 'cnn'.*'auto'"),
        (ApexDPGBuilder, ApexDPGConfig(policy_torso="lstm"), "policy_torso is 'lstm'.*'none'"),
    ],
)
def test_a_torso_of_an_unknown_name_is_refused_by_a_builder(make, config, message):
    with pytest.raises(ValueError, match=rf"^agent\.{message} or 'module:function'"):
        make(config)


def test_messages_name_the_function():
    for torso_fn, label in ((None, "agent.torso 'builtins:len'"), (len, "torso_fn 'len'")):
        with pytest.raises(ValueError, match=rf"^{label} raises TypeError"):
            make_own_torso("builtins:len", "agent.torso", torso_fn, None, None, OBSERVATIONS)
