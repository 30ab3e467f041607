"""Tests that what cannot be sent to other processes is named before a run."""

import functools
import re
import socket
import sys
import threading
import types

import pytest

import apex_agents
from apex_agents import ApexDQNBuilder, ApexDQNConfig, EnvironmentConfig, ExperimentConfig
from apex_agents.environments import Catch
from apex_agents.nodes.backend import LocalBackend, ThreadBackend
from apex_agents.nodes.pickling import check_pickles


def closes_over(held):
    def make_environment():
        return Catch() if held else None

    return make_environment


def takes(held):
    return Catch()


class Maker:
    """Makes environments, and holds something in an attribute of an attribute."""

    def __init__(self, held):
        self.parts = types.SimpleNamespace(held=held)

    def __call__(self):
        return Catch()

    def make(self):
        return Catch()


def of_a_script(held):
    """Return a function whose variable is one of its script."""
    script = types.ModuleType("a_script")
    exec("def make_environment():\n    return held", vars(script))
    script.held = held
    return script.make_environment


def with_held_class(held):
    class Local(Catch):
        lock = held

    return Local


def with_method_of_a_script(held):
    """Return a class whose method refers to a variable of its script, and to the class itself."""
    script = types.ModuleType("a_script")
    source = "class Own:\n    def step(self):\n        return __class__, super(), held, Catch()"
    exec(source, vars(script))
    script.held, script.Catch = held, Catch
    return script.Own


ENVIRONMENT_FNS = {
    "Own": (with_method_of_a_script, "step.held"),
    "closes_over.<locals>.make_environment": (closes_over, "held"),
    "make_environment": (of_a_script, "held"),
    "Maker": (Maker, "parts.held"),
    "Maker.make": (lambda held: Maker(held).make, "self.parts.held"),
    "takes": (lambda held: functools.partial(takes, held=held), "held"),
    "with_held_class.<locals>.Local": (with_held_class, "lock"),
}


def make_experiment(**functions):
    agent = ApexDQNConfig(torso="mlp", frame_stack=0)
    config = ExperimentConfig(agent, EnvironmentConfig("toy", "catch"))
    return apex_agents.make_experiment(config, **functions)


@pytest.mark.parametrize("name", ENVIRONMENT_FNS)
@pytest.mark.parametrize("kind", ["lock", "socket"])
def test_the_variable_of_an_environment_function_is_named(name, kind):
    make, variable = ENVIRONMENT_FNS[name]
    with socket.socket() as connection:
        held = threading.Lock() if kind == "lock" else connection
        experiment = make_experiment(environment_fn=make(held))
        with pytest.raises(ValueError, match=rf"{re.escape(variable)}, of type \S*{kind}"):
            LocalBackend().prepare(experiment)
        ThreadBackend().prepare(experiment)  # Nothing is sent.


class Refuses:
    """An environment function that raises when it is pickled."""

    def __call__(self):
        return Catch()

    def __reduce__(self):
        raise RuntimeError("only here")


def make_torso_with(lock):
    return lambda spec, config: lock


def make_builder_with(lock):
    class Builder(ApexDQNBuilder):
        def __init__(self, config, torso_fn=None):
            super().__init__(config, torso_fn)
            self.guard = lock

    return Builder


def closes_over_a_name_without_a_value(held):
    def make_environment():
        return held, later

    if not held:
        later = 1
    return make_environment


def refers_to_itself(held):
    maker = Maker(sys.stdout)
    maker.parts.itself, maker.parts.lock = maker, held
    return maker


PLACE = rf"closes_over.<locals>.make_environment ({__file__}, line "
REFUSED = [
    ("environment_fn", closes_over, rf"environment_fn, .*{re.escape(PLACE)}\d+\)"),
    ("torso_fn", make_torso_with, r"torso_fn, .*make_torso.* of lock, "),
    ("builder_fn", make_builder_with, r"builder, .*Builder, .* of guard, "),
    ("environment_fn", lambda lock: Refuses(), r"environment_fn, .*Refuses, .*only here"),
    ("environment_fn", closes_over_a_name_without_a_value, r"held, of type _thread\.lock"),
    ("environment_fn", refers_to_itself, "Maker"),
]


@pytest.mark.parametrize(("name", "make", "message"), REFUSED)
def test_what_is_refused_is_named_with_its_place(name, make, message):
    experiment = make_experiment(**{name: make(threading.Lock())})
    with pytest.raises(ValueError, match=message):
        check_pickles(experiment)


@pytest.mark.parametrize("function", [closes_over(1), functools.partial(takes, 1), Maker(1)])
def test_others_are_accepted(function):
    check_pickles(make_experiment(environment_fn=function))
