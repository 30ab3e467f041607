"""Tests of exports: what their files compute, when they are refused, and what is said of them."""

import copy
import dataclasses
import json
import pathlib
import runpy
import sys
import types

import gymnasium
import numpy as np
import onnxruntime
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs
from gymnasium import spaces
from tiny_runs import make_run, registered_mirror

from apex_agents.acting.policy import GreedyPolicy
from apex_agents.actor_critic.config import A3CConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import (
    AtariConfig,
    DiscreteActions,
    EnvironmentConfig,
    EnvironmentSpec,
)
from apex_agents.environments.actions import convert_actions
from apex_agents.environments.atari import AtariVectorEnvironment
from apex_agents.export import (
    ExportError,
    describe,
    export_onnx,
    export_saved_model,
    record_observations,
)
from apex_agents.loading import load
from apex_agents.networks.torsos import PixelConv2D

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = AtariConfig(sticky_action_probability=0.25, max_noops=5, frame_stack=4)
RUNS = {
    "cartpole": (
        ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0),
        EnvironmentConfig("gymnasium", "CartPole-v1"),
    ),
    "pong": (
        ApexDQNConfig(stream_hidden_size=8),
        EnvironmentConfig(task="pong", atari=RULES),
    ),
    "point_mass": (
        ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8)),
        EnvironmentConfig("toy", "point_mass"),
    ),
    "catch": (
        A3CConfig(torso="mlp", mlp_hidden_sizes=(8,), hidden_size=8, frame_stack=0),
        EnvironmentConfig("toy", "catch"),
    ),
}


@pytest.fixture(scope="session")
def policies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, run in RUNS.items():
        make_run(folder / name, *run)
    return {name: load(folder / name) for name in RUNS}


@pytest.fixture(params=RUNS)
def policy(request, policies):
    return policies[request.param]


def test_files_compute_what_the_network_computes(policy, tmp_path):
    observations = record_observations(policy, num_steps=4, num_envs=2)
    output = policy.greedy.evaluate(observations)[0].numpy()
    expected = {policy.greedy.output_name: output, "action": policy.act(observations)}
    path = tmp_path / "saved_model"
    assert 0 <= export_saved_model(policy, path, observations) < 1e-6
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    assert signature.structured_outputs.keys() == expected.keys()

    assert 0 <= export_onnx(policy, tmp_path / "policy.onnx", observations) < 1e-6
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert {value.name for value in session.get_outputs()} == expected.keys()
    for batch in (observations, observations[:3], observations[:1]):
        outputs = signature(observation=tf.constant(batch))
        for name, values in expected.items():
            (of_onnx,) = session.run([name], {"observation": batch})
            assert of_onnx.dtype == outputs[name].numpy().dtype == values.dtype
            np.testing.assert_allclose(outputs[name], values[: len(batch)], atol=1e-6)
            np.testing.assert_allclose(of_onnx, values[: len(batch)], atol=1e-6)


def test_the_network_keeps_its_fast_convolution(policies, tmp_path):
    policy = policies["pong"]
    export_onnx(policy, tmp_path / "policy.onnx", np.zeros([1, 4, 84, 84], np.uint8))
    (layer,) = [m for m in policy.network.submodules if isinstance(m, PixelConv2D)]
    assert layer.split_into_cells is PixelConv2D(1, 4, 4).split_into_cells


class Network(snt.Module):
    """Returns `[B, 2]` of a value; of `value + error` in the graphs that are exported."""

    def __init__(self, value: float, error: float = 0.0, function=tf.identity):
        super().__init__()
        self._value, self._error, self._function = value, error, function

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        value = self._value + (0.0 if tf.executing_eagerly() else self._error)
        return self._function(tf.zeros_like(observation)[:, :2] + value)


def make_policy(network: snt.Module, **memory) -> types.SimpleNamespace:
    actions = convert_actions(spaces.Discrete(2))
    spec = EnvironmentSpec(specs.Array([3], np.float32), actions)
    evaluate = network if memory else lambda observation: (network(observation), ())
    greedy = GreedyPolicy({"network": network}, "q_values", evaluate, **memory)
    return types.SimpleNamespace(network=network, greedy=greedy, spec=spec, actions=actions)


class Sum(snt.Module):
    """A policy with memory, whose values are sums of the observations of an episode."""

    def __init__(self, function=tf.identity):
        super().__init__()
        self._function = function

    def __call__(self, observation: tf.Tensor, total: tf.Tensor) -> tuple:
        total = observation[:, :2] + (total if tf.executing_eagerly() else self._function(total))
        return total, (total,)


MEMORY = {"initial_state": lambda num_rows: (tf.zeros([num_rows, 2]),)}


EXPORTS = {"saved_model": export_saved_model, "onnx": export_onnx}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
@pytest.mark.parametrize(
    ("value", "error", "difference"),
    [
        (0.0, 9e-5, 9e-5),
        (0.0, 1.2e-4, None),
        (1000.0, 9e-4, 9.2e-4),  # Rounded to a multiple of 1 / 2^14.
        (1000.0, 1.2e-3, None),
        (np.nan, 0.0, None),
        (0.0, np.nan, None),
    ],
)
def test_a_difference_that_is_too_great_is_refused(tmp_path, export, value, error, difference):
    policy, observations = make_policy(Network(value, error)), np.zeros([4, 3], np.float32)
    path = tmp_path / "policy"
    if difference is not None:
        assert export(policy, path, observations) == pytest.approx(difference, rel=0.02)
        return
    with pytest.raises(ExportError, match="differ"):
        export(policy, path, observations)
    assert list(tmp_path.iterdir()) == []


def test_the_state_of_a_policy_with_memory_is_input_and_output(tmp_path):
    policy, observations = make_policy(Sum(), **MEMORY), np.float32([[1, 2, 0], [5, 4, 0]])
    assert export_saved_model(policy, tmp_path / "saved_model", observations) == 0
    assert export_onnx(policy, tmp_path / "policy.onnx", observations) == 0
    inputs = {"observation": observations, "state_0": np.float32([[0, 0], [10, 20]])}
    expected = {
        "q_values": [[1, 2], [15, 24]],
        "next_state_0": [[1, 2], [15, 24]],
        "action": [1, 1],
    }
    signature = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    for outputs in (
        signature(**{name: tf.constant(value) for name, value in inputs.items()}),
        dict(zip(expected, session.run(list(expected), inputs), strict=True)),
    ):
        assert {name: np.asarray(value).tolist() for name, value in outputs.items()} == expected


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_a_state_that_has_no_effect_is_refused(tmp_path, export):
    policy = make_policy(Sum(tf.zeros_like), **MEMORY)
    with pytest.raises(ExportError, match="differ"):
        export(policy, tmp_path / "policy", np.ones([4, 3], np.float32))


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_a_single_observation_is_compared_too(tmp_path, export):
    def keep_of_one(values: tf.Tensor) -> tf.Tensor:
        return values * tf.cast(tf.shape(values)[0] == 1, tf.float32)

    policy = make_policy(Network(0.0, 1.0, keep_of_one))
    with pytest.raises(ExportError, match="differ"):
        export(policy, tmp_path / "policy", np.zeros([4, 3], np.float32))


def test_an_operation_that_onnx_has_not_is_named(tmp_path):
    network = Network(0.0, function=lambda x: tf.cast(tf.bitcast(x, tf.int32), tf.float32))
    policy, observations = make_policy(network), np.zeros([4, 3], np.float32)
    assert export_saved_model(policy, tmp_path / "saved_model", observations) == 0
    with pytest.raises(ExportError, match="Bitcast"):
        export_onnx(policy, tmp_path / "policy.onnx", observations)
    assert not (tmp_path / "policy.onnx").exists()


def test_a_network_for_a_known_number_of_observations_only(tmp_path):
    network = Network(0.0, function=lambda x: x + tf.zeros([x.shape[0], 1]))
    with pytest.raises(ExportError, match="needs a known number of observations: "):
        export_saved_model(make_policy(network), tmp_path / "model", np.zeros([4, 3], np.float32))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", ["ImportError", "AttributeError"])
def test_libraries_that_cannot_be_imported(tmp_path, monkeypatch, error):
    (tmp_path / "tf2onnx.py").write_text(f"raise {error}('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tf2onnx", raising=False)
    with pytest.raises(ImportError, match="broken"):
        export_onnx(make_policy(Network(0.0)), tmp_path / "policy.onnx", np.zeros([4, 3]))


def test_the_example_sees_what_evaluations_see(tmp_path, monkeypatch):
    """Its stacks of frames of Breakout, over lost lives and the ends of games."""
    policy = load(ROOT / "agents" / "breakout")
    description = describe(policy)
    assert description["environment"]["atari"]["life_loss_ends_episode"]
    (tmp_path / "policy.json").write_text(json.dumps(description))
    seen, played = [], np.random.default_rng(0).integers(4, size=10_000)

    class Session:
        def __init__(self, path):
            pass

        def run(self, names, batch):
            seen.append(batch["observation"].copy())
            return [played[[len(seen)]]]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", ["play_onnx.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "play_onnx.py"))
    config = policy.config.environment.atari
    assert config.life_loss_ends_episode
    environment = AtariVectorEnvironment("breakout", config, [0], evaluation=True)
    timestep, num_black = environment.reset(), 0
    for frames, action in zip(seen, played[1 : len(seen) + 1], strict=True):
        np.testing.assert_array_equal(frames, timestep.observation)
        num_black += not frames[0, 0].any()
        timestep = environment.step(action[np.newaxis])
    environment.close()
    assert num_black >= 5 * 5 * 3  # Three stacks of each of five lives in five games.


def test_half_of_the_recorded_actions_are_random():
    played = []

    class Environment:
        def reset(self):
            return types.SimpleNamespace(observation=np.full([4, 3], len(played)))

        def step(self, actions):
            played.append(actions)
            return self.reset()

        def close(self):
            self.is_closed = True

    environment = Environment()
    observations = record_observations(
        types.SimpleNamespace(
            act_at=lambda timestep: np.full(4, 7, np.int32),
            make_environment=lambda num_envs, seed: environment,
            actions=convert_actions(spaces.Discrete(5)),
            spec=types.SimpleNamespace(
                observations=specs.Array((3,), np.int64),
                actions=convert_actions(spaces.Discrete(5)),
            ),
        ),
        num_steps=200,
        num_envs=4,
    )
    assert observations[:, 0].tolist() == [step for step in range(201) for _ in range(4)]
    actions = np.concatenate(played)
    # 800 draws, of which the share of random ones has a standard deviation of 1.8 %.
    assert 0.4 < np.mean(actions != 7) < 0.6
    assert set(actions.tolist()) == {0, 1, 2, 3, 4, 7}
    assert environment.is_closed


def test_recorded_actions_of_dpg_are_within_their_bounds(policies):
    policy = policies["point_mass"]
    observations = record_observations(policy, num_steps=20, num_envs=3, seed=1)
    assert (observations.shape, observations.dtype) == ((63, 1), np.float32)
    np.testing.assert_array_equal(observations, record_observations(policy, 20, 3, seed=1))
    assert np.any(observations != record_observations(policy, 20, 3, seed=2))


BOX = spaces.Box(np.float64([0, -1]), np.float64([3, 10]), dtype=np.float64)
NUMBERS = spaces.Discrete(3, start=1)
PAIR = spaces.MultiDiscrete([2, 3], dtype=np.int32, start=[0, 5])


@pytest.mark.parametrize(
    ("run", "space", "described"),
    [
        ("point_mass", BOX, {"dtype": "float64", "low": [0, -1], "high": [3, 10]}),
        ("cartpole", NUMBERS, {"dtype": "int64", "low": 1, "high": 3}),
        ("catch", NUMBERS, {"dtype": "int64", "low": 1, "high": 3}),
        ("catch", PAIR, {"dtype": "int32", "shape": [2], "low": [0, 5], "high": [1, 7]}),
    ],
)
def test_exports_act_in_the_units_of_the_environment(tmp_path, run, space, described):
    agent, _ = RUNS[run]
    with registered_mirror(spaces.Box(-1, 1, [2]), space) as task:
        make_run(tmp_path / "run", agent, EnvironmentConfig("gymnasium", task))
        policy = load(tmp_path / "run")
        observations = record_observations(policy, num_steps=50)  # Actions are random.
    export_saved_model(policy, tmp_path / "saved_model", observations)
    export_onnx(policy, tmp_path / "policy.onnx", observations)
    assert describe(policy)["action"].items() >= described.items()
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    signature = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    (of_onnx,) = session.run(["action"], {"observation": observations})
    of_saved_model = signature(observation=tf.constant(observations))["action"].numpy()
    output = policy.greedy.evaluate(observations)[0].numpy()
    expected = output.argmax(axis=1) + 1
    if space is BOX:
        expected = np.stack([1.5 + 1.5 * output[:, 0], 4.5 + 5.5 * output[:, 1]], axis=1)
    if space is PAIR:
        expected = np.stack([output.argmax(axis=1) // 3, 5 + output.argmax(axis=1) % 3], axis=1)
    for actions in (of_onnx, of_saved_model, policy.act(observations)):
        np.testing.assert_allclose(actions, expected, rtol=1e-5)
        assert actions.dtype == space.dtype
        assert all(map(space.contains, actions))


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_another_action_than_that_of_the_greatest_value_is_refused(tmp_path, export):
    class OthersActions(DiscreteActions):
        def to_environment(self, actions):
            return 1 - actions

    policy = make_policy(Network(0.0, function=lambda q: q + tf.constant([1.0, 0.0])))
    policy.actions = OthersActions(spaces.Discrete(2))
    with pytest.raises(ExportError, match="action"):
        export(policy, tmp_path / "policy", np.zeros([4, 3], np.float32))
    assert list(tmp_path.iterdir()) == []


UNITS = ("float32", [-1.0], [1.0])


def test_what_is_said_of_an_export(policies):
    cartpole, point_mass = [
        json.loads(json.dumps(describe(policies[name]))) for name in ("cartpole", "point_mass")
    ]
    assert (cartpole["agent"], cartpole["learner_steps"]) == ("apex_dqn", 1234)
    assert (cartpole["gymnasium"], cartpole["action_repeat"]) == ({"id": "CartPole-v1"}, 1)
    assert cartpole["environment"]["suite"] == "gymnasium"
    assert (cartpole["observation"]["shape"], cartpole["observation"]["dtype"]) == ([4], "float32")
    assert cartpole["q_values"]["shape"] == [2]
    assert point_mass["agent"] == "apex_dpg"
    assert point_mass["gymnasium"] is None
    for described, expected in ((cartpole, ([], "int64", 0, 1)), (point_mass, ([1], *UNITS))):
        action = described["action"]
        assert tuple(action[key] for key in ("shape", "dtype", "low", "high")) == expected


def test_the_state_that_begins_an_episode_is_described(policies):
    policy = copy.copy(policies["cartpole"])
    policy.greedy = policy.greedy._replace(
        initial_state=lambda num_rows: (tf.zeros([num_rows, 2]), tf.fill([num_rows], 7))
    )
    described = describe(policy)
    assert described["memory"]["state_0"] == {
        "shape": [2],
        "dtype": "float32",
        "initial": [0.0, 0.0],
    }
    assert described["memory"]["state_1"] == {"shape": [], "dtype": "int32", "initial": 7}


def describe_in(policy, environment: EnvironmentConfig) -> dict:
    policy = copy.copy(policy)
    policy.config = dataclasses.replace(policy.config, environment=environment)
    return describe(policy)


def test_an_environment_with_settings_is_described_with_them(policies):
    environment = EnvironmentConfig(
        *("gymnasium", "CartPole-v1", {"sutton_barto_reward": True}),
        max_episode_steps=300,
        action_repeat=3,
        evaluation_kwargs={"render_mode": "rgb_array"},
    )
    described = describe_in(policies["cartpole"], environment)
    assert described["gymnasium"] == {
        "id": "CartPole-v1",
        "sutton_barto_reward": True,
        "render_mode": "rgb_array",
        "max_episode_steps": 300,
    }
    assert described["action_repeat"] == 3


def test_an_atari_environment_is_described_as_it_is(policies):
    description = json.loads(json.dumps(describe(policies["pong"])))
    described = gymnasium.make_vec(**description["gymnasium"], num_envs=1)
    ours = AtariVectorEnvironment("pong", RULES, [7], evaluation=True)
    observation, _ = described.reset(seed=np.array([7]))
    np.testing.assert_array_equal(observation, ours.reset().observation)
    random = np.random.default_rng(0)
    for _ in range(200):  # The first point is among them.
        action = random.integers(6, size=1)
        observation, reward, *_ = described.step(action)
        timestep = ours.step(action)
        np.testing.assert_array_equal(observation, timestep.observation)
        assert reward == timestep.reward
    assert ours.current_episode(0).episode_return < 0
    assert observation.shape[1:] == tuple(description["observation"]["shape"])
    described.close()
    ours.close()


def test_a_game_of_two_words_has_its_name_in_gymnasium(policies):
    described = describe_in(policies["pong"], EnvironmentConfig(task="ms_pacman"))
    assert described["gymnasium"]["id"] == "ale_py:ALE/MsPacman-v5"
