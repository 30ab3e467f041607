"""Tests of parameters in `.npz` files."""

import pathlib

import numpy as np
import pytest

from apex_agents.runs.parameter_file import load_parameters, save_parameters

VARIABLES = {
    # More than ten, so that 10 must not come before 2.
    "network": [np.full([2], i, np.float32) for i in range(12)],
    "policy/torso": [np.arange(6).reshape(2, 3), np.asarray(7, np.int64)],
    "empty_shape": [np.zeros([0, 3], np.float64)],
    "learner_steps": [np.ones(3)],
}


def test_parameters_survive_a_round_trip(tmp_path):
    save_parameters(tmp_path / "best.npz", VARIABLES, 1234)
    loaded, learner_steps = load_parameters(tmp_path / "best.npz")
    assert learner_steps == 1234
    assert loaded.keys() == VARIABLES.keys()
    for name, group in VARIABLES.items():
        assert len(loaded[name]) == len(group)
        for array, expected in zip(loaded[name], group, strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("names", [("a", "a/b"), ("policy", "policy/torso")])
def test_a_name_may_begin_like_another(tmp_path, names):
    save_parameters(tmp_path / "best.npz", {n: [np.asarray(i)] for i, n in enumerate(names)}, 0)
    loaded, _ = load_parameters(tmp_path / "best.npz")
    assert {name: [int(array) for array in group] for name, group in loaded.items()} == {
        names[0]: [0],
        names[1]: [1],
    }


def test_saving_replaces_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "best.npz"
    for value in (0.0, 1.0):
        save_parameters(path, {"network": [np.full(3, value)]}, 5)
    np.testing.assert_array_equal(load_parameters(path)[0]["network"][0], [1, 1, 1])
    assert [file.name for file in tmp_path.iterdir()] == ["best.npz"]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "best.npz"
    with pytest.raises(OSError):
        load_parameters(path)
    save_parameters(path, VARIABLES, 5)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(np.float32([3, 3]).tobytes())] ^= 0xFF
    for content in (b"", b"text", b"PK\3\4" + bytes(100), whole[:-9], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            load_parameters(path)
    np.savez(path, **{"network/0": np.zeros(3)})  # Without the learner steps.
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
    np.savez(path, **{"network/0": np.array([Hostile(executed)], dtype=object)}, learner_steps=1)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_parameters(path)
    assert not executed.exists()
    # The trap works where pickles are allowed.
    np.load(path, allow_pickle=True)["network/0"]
    assert executed.exists()
