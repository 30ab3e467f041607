"""Tests of parameters in `.npz` files: written, read, and assigned to policies by name."""

import pathlib
import re

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.replay.messages import to_arrays
from apex_agents.runs.parameter_file import (
    PARAMETERS,
    assign,
    by_variable_name,
    read_parameters,
    read_steps,
    save_parameters,
)

ARRAYS = {
    "torso/conv_1/w": np.arange(6).reshape(2, 3),
    "torso/conv_1/b": np.full([2], 3, np.float32),
    "count": np.asarray(7, np.int64),
    "empty_shape": np.zeros([0, 3], np.float64),
}

DQN = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8, 4), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 4), critic_hidden_sizes=(8, 4))
AGENTS = {"dqn": (ApexDQNBuilder(DQN), "catch"), "dpg": (ApexDPGBuilder(DPG), "point_mass")}


def assert_equal(parameters: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert parameters.keys() == expected.keys()
    for name, array in expected.items():
        assert parameters[name].dtype == array.dtype
        np.testing.assert_array_equal(parameters[name], array, err_msg=name)


def test_parameters_survive_a_round_trip_that_leaves_no_other_file(tmp_path):
    path = tmp_path / "best.npz"
    for arrays in ({"torso/w": np.zeros(3)}, ARRAYS):  # The second file replaces the first.
        save_parameters(path, arrays, 1234)
    assert read_steps(path) == 1234
    assert read_parameters(path)[::2] == (path, 1234)
    assert_equal(read_parameters(path).arrays, ARRAYS)
    assert [file.name for file in tmp_path.iterdir()] == ["best.npz"]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (
            {"network": ["torso/w", "torso/b", "head/w"]},
            {"torso/w": 0, "torso/b": 1, "head/w": 2},
        ),
        (
            {"policy": ["torso/w", "pi/w"], "critic": ["torso/w"]},
            {"policy/torso/w": 0, "pi/w": 1, "critic/torso/w": 2},
        ),
        (
            {"network": ["linear/w", "linear/w", "linear_1/w", "linear/w"]},
            {"linear/w": 0, "linear_1/w": 1, "linear_1_1/w": 2, "linear_2/w": 3},
        ),
        ({"network": ["w"], "num_updates": ["n"]}, {"w": 0}),  # A count is no parameter.
        ({"network": ["w", "w", "learner_steps"]}, {"w": 0, "w_1": 1, "learner_steps_1": 2}),
        (
            {"policy": ["w"], "critic": ["policy/w", "w"]},
            {"policy/w": 0, "policy_1/w": 1, "critic/w": 2},
        ),
    ],
)
def test_every_variable_has_its_own_name(groups, expected):
    variables = {g: [tf.Variable(0.0, name=name) for name in names] for g, names in groups.items()}
    numbers = iter(range(10))
    values = {group: [next(numbers) for _ in names] for group, names in groups.items()}
    assert by_variable_name(variables, values) == expected


def test_layers_without_names_get_equal_names_in_equal_networks():
    for _ in range(2):
        network = snt.Sequential([snt.Linear(4), tf.nn.relu, snt.Linear(3)])
        network(tf.zeros([1, 2]))
        named = by_variable_name({"network": network.variables}, {"network": network.variables})
        shapes = {name: tuple(variable.shape) for name, variable in named.items()}
        assert shapes == {
            "linear/b": (4,),
            "linear/w": (2, 4),
            "linear_1/b": (3,),
            "linear_1/w": (4, 3),
        }


@pytest.mark.parametrize("file", ["best.npz", PARAMETERS])
def test_other_files_are_refused(file, tmp_path):
    path = tmp_path / file
    given = tmp_path if file == PARAMETERS else path  # A checkpoint is a folder.
    with pytest.raises(ValueError, match=f"{given} cannot be read"):
        read_parameters(given)
    save_parameters(path, ARRAYS, 5)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(np.float32([3, 3]).tobytes())] ^= 0xFF
    for content in (b"", b"text", b"PK\3\4" + bytes(100), whole[:-9], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{given} cannot be read"):
            read_parameters(given)
    np.savez(path, **{"torso/w": np.zeros(3)})  # The learner steps are missing.
    for read in (read_parameters, read_steps):
        with pytest.raises(ValueError, match="learner_steps"):
            read(given)


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


@pytest.mark.fault(
    breaks="an `.npz` of the work directory with a pickle inside",
    holds="nothing is executed; reading fails",
)
def test_nothing_in_a_file_is_executed(tmp_path):
    path, executed = tmp_path / "hostile.npz", tmp_path / "executed"
    np.savez(path, **{"torso/w": np.array([Hostile(executed)], dtype=object)}, learner_steps=1)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_parameters(path)
    assert not executed.exists()
    # The trap works where pickles are allowed.
    np.load(path, allow_pickle=True)["torso/w"]
    assert executed.exists()


def make_policy(agent: str):
    builder, task = AGENTS[agent]
    environment = make_vector_environment(EnvironmentConfig("toy", task), 1, 0)
    return builder.make_evaluation_policy(environment.spec, num_envs=2, seed=5)


def copy_parameters(policy) -> dict[str, np.ndarray]:
    return by_variable_name(policy.variables, to_arrays(policy.variables))


def make_arrays(agent: str) -> dict[str, np.ndarray]:
    """Return parameters of which all numbers differ."""
    random = np.random.default_rng(0)
    return {
        name: random.normal(size=array.shape).astype(np.float32)
        for name, array in copy_parameters(make_policy(agent)).items()
    }


@pytest.mark.parametrize("agent", AGENTS)
def test_a_policy_gets_what_the_learner_had_whatever_the_order(agent, tmp_path):
    arrays, policy = make_arrays(agent), make_policy(agent)
    save_parameters(tmp_path / "best.npz", dict(reversed(arrays.items())), 1234)
    saved = read_parameters(tmp_path / "best.npz")
    assign(policy.variables, saved)
    assert saved.learner_steps == 1234
    assert_equal(copy_parameters(policy), arrays)


@pytest.mark.parametrize("change", ["shape", "missing", "unexpected", "agent"])
def test_parameters_of_other_networks_change_nothing(change, tmp_path):
    arrays = make_arrays("dqn")
    name = list(arrays)[-1]  # The last one: those before it would be assigned.
    shape = arrays[name].shape
    wrong = np.zeros([7, 9], np.float32)
    changed, described = {
        "shape": (arrays | {name: wrong}, f"{name} is (7, 9), not {shape}"),
        "missing": (dict(list(arrays.items())[:-1]), f"{name} {shape} is missing"),
        "unexpected": (arrays | {"encoder/w": wrong}, "encoder/w (7, 9) is unexpected"),
        "agent": (make_arrays("dpg"), "does not fit"),
    }[change]
    save_parameters(tmp_path / "best.npz", changed, 1)
    policy = make_policy("dqn")
    before = copy_parameters(policy)
    with pytest.raises(ValueError, match=re.escape(described)):
        assign(policy.variables, read_parameters(tmp_path / "best.npz"))
    assert_equal(copy_parameters(policy), before)


def test_learner_steps_of_a_file_are_those_of_a_schedule(tmp_path):
    weight, count = tf.Variable(1.0, name="w"), tf.Variable(0, dtype=tf.int64)
    save_parameters(tmp_path / "best.npz", {"w": np.float32(2.0)}, 1234)
    variables = {"network": [weight], "num_updates": [count]}
    assign(variables, read_parameters(tmp_path / "best.npz"))
    assert (float(weight), int(count)) == (2.0, 1234)
