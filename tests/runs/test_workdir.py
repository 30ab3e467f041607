"""Tests of the run's folder and of what is saved in it."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

from apex_agents.runs import workdir
from apex_agents.runs.workdir import load_variables, open_workdir, save_variables


@dataclasses.dataclass
class Config:
    size: int = 3
    nested: dict = dataclasses.field(default_factory=lambda: {"rate": 0.5})


def test_open_workdir_writes_the_config_and_makes_the_folders(tmp_path):
    path = tmp_path / "a" / "b"
    assert open_workdir(str(path), "name", Config()) == str(path)
    assert json.loads((path / "config.json").read_text()) == {"size": 3, "nested": {"rate": 0.5}}
    assert (path / "logs").is_dir()
    assert (path / "checkpoints").is_dir()


def test_open_workdir_accepts_an_empty_folder_and_keeps_foreign_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert open_workdir(str(tmp_path), "name", Config()) == str(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_open_workdir_is_absolute_and_new_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = open_workdir(None, "name", Config())
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/runs/name-\d{{8}}-\d{{6}}", path)
    assert open_workdir("relative", "name", Config()) == str(tmp_path / "relative")


def test_open_workdir_expands_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_workdir("~/run", "name", Config()) == str(tmp_path / "run")


@dataclasses.dataclass
class RunOfConfig:
    """A config with the sections of a real one."""

    agent: dict = dataclasses.field(
        default_factory=lambda: {"replay": {"max_size": 3}, "n": (1, 2)}
    )
    environment: dict = dataclasses.field(default_factory=lambda: {"task": "pong"})
    run: dict = dataclasses.field(default_factory=lambda: {"max_learner_steps": 5})


@pytest.fixture
def stopped_run(tmp_path) -> pathlib.Path:
    """A folder whose run ended; nobody holds its lock."""
    open_workdir(str(tmp_path), "name", RunOfConfig())
    for file in ("summary.json", "logs/learner.csv"):
        (tmp_path / file).write_text("{}")
    workdir._locks.pop().close()
    return tmp_path


def test_a_run_goes_on_with_other_limits(stopped_run):
    open_workdir(str(stopped_run), "name", RunOfConfig(run={"max_learner_steps": 9, "new": 1}))
    config = json.loads((stopped_run / "config.json").read_text())
    assert config["run"] == {"max_learner_steps": 9, "new": 1}
    # The end before is forgotten, the logs stay.
    assert not (stopped_run / "summary.json").exists()
    assert (stopped_run / "logs/learner.csv").exists()


@pytest.mark.fault(
    breaks="the `--workdir` of a run with another agent or environment",
    holds="refused, with the first field that differs",
)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": {"task": "breakout"}}, "environment.task 'pong', not 'breakout'"),
        ({"agent": {"replay": {"max_size": 4}, "n": (1, 2)}}, "agent.replay.max_size 3, not 4"),
        ({"agent": {"replay": {"max_size": 3}, "n": (1,)}}, r"agent.n [1, 2], not [1]"),
        ({"agent": {"n": (1, 2)}}, "agent.replay {'max_size': 3}, not None"),
    ],
)
def test_a_run_does_not_go_on_as_another(changes, message, stopped_run):
    with pytest.raises(ValueError, match=re.escape(message)):
        open_workdir(str(stopped_run), "name", RunOfConfig(**changes))
    assert (stopped_run / "summary.json").exists()


def test_a_config_that_cannot_be_read(stopped_run):
    (stopped_run / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read; name another folder"):
        open_workdir(str(stopped_run), "name", RunOfConfig())


@pytest.mark.fault(
    breaks="the `--workdir` of a run that goes on",
    holds="refused",
)
def test_two_runs_in_one_folder_are_refused(tmp_path):
    open_workdir(str(tmp_path), "name", RunOfConfig())
    with pytest.raises(ValueError, match=f"--workdir={tmp_path} is in use"):
        open_workdir(str(tmp_path), "name", RunOfConfig())


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file", "Not a directory"),
        ("file/run", "Not a directory"),
        ("blocked", "File exists"),
        ("/proc/run", "No such file or directory"),
    ],
)
def test_open_workdir_says_why_it_cannot_write(tmp_path, path, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "logs").write_text("")
    with pytest.raises(ValueError) as caught:
        open_workdir(str(tmp_path / path), "name", Config())
    assert str(caught.value) == f"--workdir={tmp_path / path} cannot be written: {reason}."


VARIABLES = {
    # More than ten, so that 10 must not come before 2.
    "network": [np.full([2], i, np.float32) for i in range(12)],
    "policy/torso": [np.arange(6).reshape(2, 3), np.asarray(7, np.int64)],
    "empty_shape": [np.zeros([0, 3], np.float64)],
}


def test_variables_survive_a_round_trip(tmp_path):
    save_variables(tmp_path / "best.npz", VARIABLES)
    loaded = load_variables(tmp_path / "best.npz")
    assert set(loaded) == set(VARIABLES)
    for name, group in VARIABLES.items():
        assert len(loaded[name]) == len(group)
        for array, expected in zip(loaded[name], group, strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("names", [("a", "a/b"), ("policy", "policy/torso")])
def test_a_name_may_begin_like_another(tmp_path, names):
    variables = {name: [np.asarray(i)] for i, name in enumerate(names)}
    save_variables(tmp_path / "best.npz", variables)
    loaded = load_variables(tmp_path / "best.npz")
    assert {name: [int(a) for a in group] for name, group in loaded.items()} == {
        names[0]: [0],
        names[1]: [1],
    }


def test_saving_replaces_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "best.npz"
    save_variables(path, {"network": [np.zeros(3)]})
    save_variables(path, {"network": [np.ones(3)]})
    np.testing.assert_array_equal(load_variables(path)["network"][0], [1, 1, 1])
    assert [file.name for file in tmp_path.iterdir()] == ["best.npz"]


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
    np.savez(
        tmp_path / "hostile.npz",
        **{"network/0": np.array([Hostile(tmp_path / "executed")], dtype=object)},
    )
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_variables(tmp_path / "hostile.npz")
    assert not (tmp_path / "executed").exists()
    # The trap works where pickles are allowed.
    np.load(tmp_path / "hostile.npz", allow_pickle=True)["network/0"]
    assert (tmp_path / "executed").exists()
