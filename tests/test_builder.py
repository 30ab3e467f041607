"""Arguments that builders of the Ape-X family pass on to the parts that they make."""

import dataclasses
import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from apex_agents import builder as builder_module
from apex_agents.actor_critic.builder import ActorCriticBuilder
from apex_agents.actor_critic.config import A2CConfig
from apex_agents.builder import ApexBuilder
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec, restart_batch
from apex_agents.learning.learner import ApexLearner
from apex_agents.replay.config import ReplayConfig

REPLAY = ReplayConfig(max_size=100, min_size=1)
SETTINGS = {
    "n_step": 5,
    "discount": 0.75,
    "batch_size": 9,
    "variable_update_period": 7,
    "publish_period": 3,
    "num_sgd_steps_per_step": 4,
    "replay": REPLAY,
}


class Recorder:
    """Stands for a class or a function; remembers what it is called with."""

    def __init__(self):
        self.calls = []  # Keyword arguments of all calls.
        self.made = object()

    def __call__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs
        self.calls.append(kwargs)
        return self.made


@pytest.fixture
def record(monkeypatch) -> Callable[[str], Recorder]:
    """Replace a part that builders make, by its name, with a recorder."""

    def record(name: str) -> Recorder:
        recorder = Recorder()
        monkeypatch.setattr(builder_module, name, recorder)
        return recorder

    return record


def make_builder(name: str, **settings: Any) -> tuple[ApexBuilder, EnvironmentSpec]:
    vector = specs.Array((4,), np.float32)
    if name == "dqn":
        config = ApexDQNConfig(torso="mlp", frame_stack=0, **{**SETTINGS, **settings})
        spec = EnvironmentSpec(vector, specs.DiscreteArray(2), rewards=None, discounts=None)
        return ApexDQNBuilder(config), spec
    actions = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
    spec = EnvironmentSpec(vector, actions, rewards=None, discounts=None)
    return ApexDPGBuilder(ApexDPGConfig(**{**SETTINGS, **settings})), spec


# Where it makes no difference whose parts they are, the builder is that of Ape-X DQN.
BUILDER, SPEC = make_builder("dqn")
BOTH = pytest.mark.parametrize("name", ["dqn", "dpg"])


def test_learner(record):
    recorder, source, connections, publisher, compiled = map(
        record,
        (
            "ApexLearner",
            "ReplaySource",
            "ReplayConnections",
            "ParameterPublisher",
            "make_update_on_sample",
        ),
    )
    given = {name: object() for name in ("logger", "should_stop")}
    BUILDER.make_learner(SPEC, ["client"] * 3, seed=1, **given)
    arguments = inspect.signature(ApexLearner).bind(*recorder.args, **recorder.kwargs).arguments
    clients, make_dataset_of, *sizes = connections.args
    assert (clients, sizes) == (["client"] * 3, [9, 4])
    dataset = record("make_dataset")
    make_dataset_of("client")
    assert dataset.args[:3] == ("client", dataclasses.replace(REPLAY, max_size=34, min_size=1), 3)
    assert compiled.args == (arguments.pop("update"), BUILDER.config)
    assert source.args == (compiled.made, connections.made, BUILDER.config)
    assert publisher.args == (["client"] * 3,)
    made = {"source": source.made, "publisher": publisher.made}
    assert arguments == {**made, "publish_period": 3, **given}


@BOTH
def test_updates_begin_with_the_seed(name):
    builder, spec = make_builder(name)
    initial = []
    for seed in (1, 1, 2):
        groups = builder.make_update(spec, seed).variables.values()
        initial.append([variable.numpy().tolist() for group in groups for variable in group])
    assert initial[0] == initial[1] != initial[2]


def test_adders(record):
    recorder = record("PrioritizedNStepAdder")
    should_stop, learner_steps_fn = object(), object()
    BUILDER.make_adders("client", SPEC, range(2), 5, should_stop, learner_steps_fn)
    assert len(recorder.calls) == 2
    for kwargs in recorder.calls:
        assert kwargs.pop("layout").signature == BUILDER.make_layout(SPEC).signature
        assert kwargs.pop("priority_fn")(-2.0) == 2.0
        assert kwargs == {
            "client": "client",
            "replay": REPLAY,
            "n_step": 5,
            "discount": 0.75,
            "should_stop": should_stop,
            "learner_steps_fn": learner_steps_fn,
        }


@pytest.mark.parametrize(("initial_priority", "expected"), [("td_error", 2.0), ("max", 3.0)])
def test_the_adders_of_an_actor_share_the_highest_priority(record, initial_priority, expected):
    recorder = record("PrioritizedNStepAdder")
    builder, spec = make_builder("dqn", replay=ReplayConfig(initial_priority=initial_priority))
    builder.make_adders("client", spec, range(2), 2)
    first, second = [kwargs["priority_fn"] for kwargs in recorder.calls]
    assert first(-3.0) == 3.0
    assert second(2.0) == expected
    builder.make_adders("client", spec, range(1), 2)  # Make the adders of a different actor.
    assert recorder.calls[-1]["priority_fn"](2.0) == 2.0


def test_each_of_several_replays_has_its_share(record):
    recorder = record("make_dataset")
    shared = BUILDER.share(3)
    assert type(shared) is type(BUILDER)
    # 100 transitions and the least of 1 are rounded up, batches of 9 are shared out evenly.
    replay = dataclasses.replace(REPLAY, max_size=34, min_size=1)
    assert shared.config == dataclasses.replace(BUILDER.config, batch_size=3, replay=replay)
    assert BUILDER.config.replay == REPLAY
    for builder in (BUILDER, shared):
        builder.make_dataset("client", SPEC)
        client, of_replay, batch_size, layout, num_batches = recorder.args
        assert (client, of_replay) == ("client", builder.config.replay)
        assert (batch_size, num_batches) == (builder.config.batch_size, 4)
        assert layout.signature == BUILDER.make_layout(SPEC).signature


def test_actor(record):
    actor, client = record("ApexActor"), record("make_variable_client")
    BUILDER.make_actor("policy", ["adder"], "source")
    assert client.args == ("policy", "source", 7)
    assert actor.args == ("policy", ["adder"], client.made)
    BUILDER.make_actor("policy", variable_source="source")  # It plays an episode now and then.
    assert client.args == ("policy", "source", 1)
    assert actor.args == ("policy", (), client.made)


def test_settings_are_checked_without_a_run():
    config = ApexDQNConfig(replay=ReplayConfig(max_size=10_000))
    with pytest.raises(ValueError, match=r"agent.replay.min_size is 50000; .*max_size"):
        ApexDQNBuilder(config)
    config = A2CConfig()
    config.discuont = 0.9
    with pytest.raises(ValueError, match="discuont"):
        ActorCriticBuilder(config)


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (0.0, 1.0)])
def test_networks_of_dpg_need_scaled_actions(low, high):
    builder, spec = make_builder("dpg")
    spec = spec._replace(actions=specs.BoundedArray((2,), np.float32, low, high))
    with pytest.raises(ValueError, match=r"needs actions in \[-1, 1\]"):
        builder.make_policy(spec, [0], 1, 0)


# Rows of 2 * 4 observed numbers, an action or two, R, D, the learner steps and the steps.
@pytest.mark.parametrize(("name", "num_floats"), [("dqn", 8 + 1 + 4), ("dpg", 8 + 2 + 4)])
def test_memory_of_a_full_replay(name, num_floats):
    builder, spec = make_builder(name)
    assert builder.estimate_replay_bytes(spec) == 100 * (630 + 940 // 4 + 4 * num_floats)


@pytest.mark.parametrize(
    ("shape", "frame_stack", "num_rows", "frame_bytes"),
    [
        ((4, 84, 84), 4, 4 + 5 + 1, 84 * 84 / 7),  # A frame in each row of a chunk.
        ((10, 10, 4), 0, 1 + 5 + 1, 10 * 10 * 4 / 7),  # No stack: an image in each.
    ],
)
def test_memory_of_a_full_replay_of_images(shape, frame_stack, num_rows, frame_bytes):
    image = specs.Array(shape, np.uint8)
    spec = EnvironmentSpec(image, specs.DiscreteArray(2), rewards=None, discounts=None)
    config = ApexDQNConfig(torso="conv", frame_stack=frame_stack, n_step=5, replay=REPLAY)
    row_bytes = 2 * 940 / num_rows + frame_bytes + 5 * 4
    estimate = ApexDQNBuilder(config).estimate_replay_bytes(spec)
    assert estimate == round(100 * (930 + row_bytes))


def reseed() -> None:
    """Do what an environment may do in `reset`: seed all global random numbers."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    tf.random.set_seed(0)


def explore(name: str, between: Callable[[], None]) -> list:
    """Return the actions of 20 steps, and all variables of networks made after them."""
    builder, spec = make_builder(name)
    policy = builder.make_policy(spec, range(3), 3, seed=5)
    actions = []
    for _ in range(20):
        between()
        actions += np.asarray(policy(restart_batch(np.zeros((3, 4), np.float32))).action).tolist()
    between()
    made = builder.make_policy(spec, range(3), 3, seed=6)
    return [actions, *(variable.numpy().tolist() for variable in tf.nest.flatten(made.variables))]


@BOTH
def test_seeds_of_an_environment_change_neither_exploration_nor_networks(name):
    undisturbed = explore(name, lambda: None)
    assert explore(name, reseed) == undisturbed
    assert len({str(action) for action in undisturbed[0]}) > 1
