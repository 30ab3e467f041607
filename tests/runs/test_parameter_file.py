"""Tests of parameters in `.npz` files."""

import pathlib

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.runs.parameter_file import by_variable_name, load_parameters, save_parameters

PARAMETERS = {
    "torso/conv_1/w": np.arange(6).reshape(2, 3),
    "torso/conv_1/b": np.full([2], 3, np.float32),
    "count": np.asarray(7, np.int64),
    "empty_shape": np.zeros([0, 3], np.float64),
}


def test_parameters_survive_a_round_trip(tmp_path):
    save_parameters(tmp_path / "best.npz", PARAMETERS, 1234)
    loaded, learner_steps = load_parameters(tmp_path / "best.npz")
    assert learner_steps == 1234
    assert loaded.keys() == PARAMETERS.keys()
    for name, expected in PARAMETERS.items():
        assert loaded[name].dtype == expected.dtype
        np.testing.assert_array_equal(loaded[name], expected)


def variable(name: str) -> tf.Variable:
    return tf.Variable(0.0, name=name)


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
        ({"network": ["w", "w", "learner_steps"]}, {"w": 0, "w_1": 1, "learner_steps_1": 2}),
        (
            {"policy": ["w"], "critic": ["policy/w", "w"]},
            {"policy/w": 0, "policy_1/w": 1, "critic/w": 2},
        ),
    ],
)
def test_every_variable_has_a_name_of_its_own(groups, expected):
    variables = {group: [variable(name) for name in names] for group, names in groups.items()}
    numbers = iter(range(10))
    values = {group: [next(numbers) for _ in names] for group, names in groups.items()}
    assert by_variable_name(variables, values) == expected


def test_layers_without_names_get_equal_names_in_equal_networks():
    networks = [snt.Sequential([snt.Linear(4), tf.nn.relu, snt.Linear(3)]) for _ in range(2)]
    for network in networks:
        network(tf.zeros([1, 2]))
    first, second = [
        by_variable_name({"network": net.variables}, {"network": net.variables}) for net in networks
    ]
    assert list(first) == list(second) == ["linear/b", "linear/w", "linear_1/b", "linear_1/w"]
    assert [tuple(v.shape) for v in first.values()] == [(4,), (2, 4), (3,), (4, 3)]


def test_saving_replaces_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "best.npz"
    for value in (0.0, 1.0):
        save_parameters(path, {"torso/w": np.full(3, value)}, 5)
    np.testing.assert_array_equal(load_parameters(path)[0]["torso/w"], [1, 1, 1])
    assert [file.name for file in tmp_path.iterdir()] == ["best.npz"]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "best.npz"
    with pytest.raises(OSError):
        load_parameters(path)
    save_parameters(path, PARAMETERS, 5)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(np.float32([3, 3]).tobytes())] ^= 0xFF
    for content in (b"", b"text", b"PK\3\4" + bytes(100), whole[:-9], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            load_parameters(path)
    np.savez(path, **{"torso/w": np.zeros(3)})  # The learner steps are missing.
    with pytest.raises(ValueError, match="learner_steps"):
        load_parameters(path)


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
        load_parameters(path)
    assert not executed.exists()
    # The trap works where pickles are allowed.
    np.load(path, allow_pickle=True)["torso/w"]
    assert executed.exists()
