"""Tests of saved parameters: found by name, and in a policy equal to those of the learner."""

import os
import pathlib
import re
import shutil

import numpy as np
import pytest

from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.evaluation.parameters import find_parameters, load_into
from apex_agents.replay.messages import to_arrays
from apex_agents.runs.checkpoints import PARAMETERS
from apex_agents.runs.parameter_file import by_variable_name, save_parameters

STEPS = 1234
NAME = "learner-000000001234"

DQN = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8, 4), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 4), critic_hidden_sizes=(8, 4))
AGENTS = {"dqn": (ApexDQNBuilder(DQN), "catch"), "dpg": (ApexDPGBuilder(DPG), "point_mass")}


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


def save(folder: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    (folder / "checkpoints" / NAME).mkdir(parents=True)
    for path in ("best.npz", f"{NAME}/{PARAMETERS}"):
        assert save_parameters(folder / "checkpoints" / path, arrays, STEPS)


@pytest.fixture(params=AGENTS)
def agent(request) -> str:
    return request.param


@pytest.mark.parametrize("name", ["best", NAME])
def test_a_policy_gets_what_the_learner_had(tmp_path, agent, name):
    arrays = make_arrays(agent)
    save(tmp_path, arrays)
    policy = make_policy(agent)
    assert load_into(policy.variables, find_parameters(tmp_path, name)) == STEPS
    assert_equal(copy_parameters(policy), arrays)


def test_parameters_are_found_by_name_in_any_order(tmp_path, agent):
    arrays = make_arrays(agent)
    save(tmp_path, dict(reversed(arrays.items())))
    policy = make_policy(agent)
    load_into(policy.variables, find_parameters(tmp_path, "best"))
    assert_equal(copy_parameters(policy), arrays)


def assert_equal(parameters: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert parameters.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(parameters[name], array, err_msg=name)


@pytest.mark.parametrize("name", ["best", NAME])
def test_parameters_of_another_agent_are_refused(tmp_path, agent, name):
    save(tmp_path, make_arrays("dpg" if agent == "dqn" else "dqn"))
    with pytest.raises(ValueError, match="does not fit"):
        load_into(make_policy(agent).variables, find_parameters(tmp_path, name))


@pytest.mark.parametrize("change", ["shape", "missing", "unexpected"])
def test_parameters_of_other_networks_change_nothing(tmp_path, agent, change):
    arrays = make_arrays(agent)
    name = list(arrays)[-1]  # The last one: those before it would be assigned.
    shape = arrays[name].shape
    if change == "shape":
        arrays[name] = np.zeros([7, 9], np.float32)
        described = f"{name} is (7, 9), not {shape}"
    elif change == "missing":
        del arrays[name]
        described = f"{name} {shape} is missing"
    else:
        name = "encoder/w"
        arrays[name] = np.zeros([7, 9], np.float32)
        described = f"{name} (7, 9) is unexpected"
    save(tmp_path, arrays)
    policy = make_policy(agent)
    before = copy_parameters(policy)
    with pytest.raises(ValueError, match=re.escape(described)):
        load_into(policy.variables, find_parameters(tmp_path, "best"))
    assert_equal(copy_parameters(policy), before)


@pytest.mark.parametrize("name", ["best", NAME])
@pytest.mark.parametrize("content", [b"PK\3\4" + bytes(100), b"", b"text", None])
def test_corrupted_parameters(tmp_path, name, content):
    save(tmp_path, make_arrays("dqn"))
    path = find_parameters(tmp_path, name)
    file = path / PARAMETERS if name == NAME else path
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path.name} cannot be read"):
        load_into(make_policy("dqn").variables, path)


@pytest.fixture
def workdir(tmp_path) -> pathlib.Path:
    """A folder with parameters of all kinds, which are empty."""
    folder = tmp_path / "run" / "checkpoints"
    for name in ("learner-000000001300", NAME):
        (folder / name).mkdir(parents=True)
    (folder / "learner-000000001400.partial").mkdir()
    (folder / "replay").mkdir()
    save_parameters(folder / "best.npz", {}, 4000)
    save_parameters(folder / "last.npz", {}, 2000)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("checkpoint", "found"),
    [
        ("best", "best.npz"),
        ("last", "last.npz"),
        (NAME, NAME),
        ("learner-1234", NAME),
        ("learner-000000001300", "learner-000000001300"),
    ],
)
def test_parameters_are_found_by_name(workdir, checkpoint, found):
    assert find_parameters(workdir, checkpoint) == workdir / "checkpoints" / found


def test_the_last_parameters_are_those_of_most_steps_whenever_they_were_copied(workdir):
    folder = workdir / "checkpoints"
    os.utime(folder / NAME, (2**31, 2**31))
    save_parameters(folder / "last.npz", {}, 1300)
    os.utime(folder / "last.npz", (0, 0))
    assert find_parameters(workdir, "last") == folder / "learner-000000001300"
    os.utime(folder / "last.npz", (2**31, 2**31))
    assert find_parameters(workdir, "last") == folder / "last.npz"
    (folder / "last.npz").write_text("damaged")
    assert find_parameters(workdir, "last") == folder / "learner-000000001300"


def test_parameters_are_found_by_path(workdir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(workdir / "checkpoints" / "best.npz", tmp_path / "mine.npz")
    assert find_parameters(workdir, "mine.npz") == pathlib.Path("mine.npz")
    path = f"run/checkpoints/{NAME}"
    assert find_parameters(workdir, path) == pathlib.Path(path)


@pytest.mark.parametrize(
    "checkpoint", ["learner-7", "newest", "learner-000000001400", "replay", ""]
)
def test_an_unknown_name_lists_those_that_exist(workdir, checkpoint):
    with pytest.raises(ValueError, match=f"best, last, {NAME}, learner-000000001300"):
        find_parameters(workdir, checkpoint)


@pytest.mark.parametrize("checkpoint", ["gone.npz", "./best"])
def test_unknown_paths(workdir, checkpoint):
    with pytest.raises(ValueError, match=f"checkpoint={checkpoint}"):
        find_parameters(workdir, checkpoint)


@pytest.mark.parametrize("checkpoint", ["best", "last", "learner-7"])
def test_a_run_without_parameters(tmp_path, checkpoint):
    with pytest.raises(ValueError, match="has no parameters yet"):
        find_parameters(tmp_path, checkpoint)
