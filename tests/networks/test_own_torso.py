"""Tests of torsos of users: names of their variables, and the mistakes that are refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.networks.own_torso import is_own_torso, make_own_torso

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


def test_messages_name_the_function():
    for torso_fn, label in ((None, "agent.torso 'builtins:len'"), (len, "torso_fn 'len'")):
        with pytest.raises(ValueError, match=rf"^{label} raises TypeError"):
            make_own_torso("builtins:len", "agent.torso", torso_fn, None, None, OBSERVATIONS)
