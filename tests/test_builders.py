"""What both builders pass on to the parts that they make, from the config and from the caller."""

import dataclasses
import inspect
import random
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from apex_agents.acting.policy import restart_batch
from apex_agents.dpg import builder as dpg_builder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn import builder as dqn_builder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
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


class Parts:
    """A builder of one agent, whose parts are replaced by recorders."""

    def __init__(self, name: str, monkeypatch):
        vector = specs.Array((4,), np.float32)
        if name == "dqn":
            module, actions = dqn_builder, specs.DiscreteArray(2)
            config = ApexDQNConfig(torso="mlp", frame_stack=0, **SETTINGS)
            self.builder = dqn_builder.ApexDQNBuilder(config)
        else:
            module, actions = dpg_builder, specs.BoundedArray((2,), np.float32, -1.0, 1.0)
            self.builder = dpg_builder.ApexDPGBuilder(ApexDPGConfig(**SETTINGS))
        self.spec = EnvironmentSpec(vector, actions, rewards=None, discounts=None)
        self._module, self._monkeypatch = module, monkeypatch

    def record(self, name: str) -> Recorder:
        recorder = Recorder()
        self._monkeypatch.setattr(self._module, name, recorder)
        return recorder


@pytest.fixture(params=["dqn", "dpg"])
def parts(request, monkeypatch) -> Parts:
    return Parts(request.param, monkeypatch)


def test_learner(parts):
    names = ("ApexLearner", "ReplaySource", "ReplayConnections")
    recorder, source, connections = map(parts.record, names)
    given = {name: object() for name in ("logger", "should_stop")}
    parts.builder.make_learner(parts.spec, "dataset", "client", seed=1, **given)
    arguments = inspect.signature(ApexLearner).bind(*recorder.args, **recorder.kwargs).arguments
    assert connections.args == ("client", "dataset", 9, 4)
    assert source.args == (arguments.pop("update"), connections.made, parts.builder.config)
    period = parts.builder.config.publish_period
    assert arguments == {"source": source.made, "publish_period": period, **given}


def test_learners_begin_with_the_seed(parts):
    recorder, *_ = map(parts.record, ("ApexLearner", "ReplaySource", "ReplayConnections"))
    initial = []
    for seed in (1, 1, 2):
        parts.builder.make_learner(parts.spec, None, None, seed)
        groups = recorder.args[0].variables.values()  # Of the update.
        initial.append([variable.numpy().tolist() for group in groups for variable in group])
    assert initial[0] == initial[1] != initial[2]


def test_adders(parts):
    recorder = parts.record("PrioritizedNStepAdder")
    should_stop, learner_steps_fn = object(), object()
    parts.builder.make_adders("client", parts.spec, range(2), 5, should_stop, learner_steps_fn)
    assert len(recorder.calls) == 2
    for kwargs in recorder.calls:
        assert kwargs.pop("layout").signature == parts.builder.make_layout(parts.spec).signature
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
def test_the_adders_of_an_actor_share_the_highest_priority(parts, initial_priority, expected):
    recorder = parts.record("PrioritizedNStepAdder")
    parts.builder.config.replay = ReplayConfig(initial_priority=initial_priority)
    parts.builder.make_adders("client", parts.spec, range(2), 2)
    first, second = [kwargs["priority_fn"] for kwargs in recorder.calls]
    assert first(-3.0) == 3.0
    assert second(2.0) == expected
    parts.builder.make_adders("client", parts.spec, range(1), 2)  # Of another actor.
    assert recorder.calls[-1]["priority_fn"](2.0) == 2.0


def test_dataset(parts):
    recorder = parts.record("make_dataset")
    parts.builder.make_dataset("client", parts.spec)
    client, replay, batch_size, layout, num_batches = recorder.args
    assert (client, replay, batch_size, num_batches) == ("client", REPLAY, 9, 4)
    assert layout.signature == parts.builder.make_layout(parts.spec).signature


def test_each_of_several_replays_has_its_share(parts):
    shared = parts.builder.share(3)
    assert type(shared) is type(parts.builder)
    # 100 transitions and the least of 1 are rounded up, batches of 9 are shared out evenly.
    replay = dataclasses.replace(REPLAY, max_size=34, min_size=1)
    assert shared.config == dataclasses.replace(parts.builder.config, batch_size=3, replay=replay)
    assert parts.builder.config.replay == REPLAY
    recorder = parts.record("make_dataset")
    shared.make_dataset("client", parts.spec)
    assert recorder.args[:3] == ("client", replay, 3)


def test_batches_that_cannot_be_shared_out_are_refused(parts):
    message = r"run.num_replays is 2; it has to be a divisor of agent.batch_size \(9\)"
    with pytest.raises(ValueError, match=message):
        parts.builder.share(2)


def test_actor(parts):
    recorder = parts.record("make_actor")
    parts.builder.make_actor("policy", ["adder"], "source")
    assert recorder.args == ("policy", ["adder"], "source", 7)


def test_memory_of_a_full_replay(parts):
    # Rows of 2 * 4 observed numbers, an action or two, R, D, the learner steps and the steps.
    num_floats = {"ApexDQNBuilder": 8 + 1 + 4, "ApexDPGBuilder": 8 + 2 + 4}
    row_bytes = 4 * num_floats[type(parts.builder).__name__]
    assert parts.builder.estimate_replay_bytes(parts.spec) == 100 * (630 + 940 // 4 + row_bytes)


def test_memory_of_a_full_replay_of_frames():
    frames = specs.Array((4, 84, 84), np.uint8)
    spec = EnvironmentSpec(frames, specs.DiscreteArray(2), rewards=None, discounts=None)
    builder = dqn_builder.ApexDQNBuilder(ApexDQNConfig(frame_stack=4, n_step=5, replay=REPLAY))
    # Chunks of 4 + 5 + 1 rows.
    row_bytes = 2 * 940 / 10 + 84 * 84 / 7 + 5 * 4
    assert builder.estimate_replay_bytes(spec) == round(100 * (930 + row_bytes))


def test_memory_of_a_full_replay_of_images_that_are_no_stacks():
    image = specs.Array((10, 10, 4), np.uint8)
    spec = EnvironmentSpec(image, specs.DiscreteArray(2), rewards=None, discounts=None)
    config = ApexDQNConfig(torso="conv", frame_stack=0, n_step=5, replay=REPLAY)
    # Chunks of 1 + 5 + 1 rows, each with one image.
    row_bytes = 2 * 940 / 7 + 10 * 10 * 4 / 7 + 5 * 4
    estimate = dqn_builder.ApexDQNBuilder(config).estimate_replay_bytes(spec)
    assert estimate == round(100 * (930 + row_bytes))


def reseed() -> None:
    """Do what an environment may do in `reset`: seed all global random numbers."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    tf.random.set_seed(0)


def explore(parts: Parts, between: Callable[[], None]) -> list:
    """Return the actions of six steps, and all variables of networks made after them."""
    policy = parts.builder.make_policy(parts.spec, range(3), 3, seed=5)
    actions = []
    for _ in range(6):
        between()
        actions += np.asarray(policy(restart_batch(np.zeros((3, 4), np.float32))).action).tolist()
    between()
    made = parts.builder.make_policy(parts.spec, range(3), 3, seed=6)
    return [actions, *(variable.numpy().tolist() for variable in tf.nest.flatten(made.variables))]


def test_seeds_of_an_environment_change_neither_exploration_nor_networks(parts):
    undisturbed = explore(parts, lambda: None)
    assert explore(parts, reseed) == undisturbed
    assert len({str(action) for action in undisturbed[0]}) > 1
