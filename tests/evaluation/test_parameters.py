"""Tests of what a run leaves behind: found by name, and the same in a policy as in the learner."""

import os
import pathlib
import shutil

import numpy as np
import pytest

from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.learning import DPGUpdate
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec, make_vector_environment
from apex_agents.evaluation.parameters import find_parameters, load_into
from apex_agents.experiment import Progress
from apex_agents.replay.parameters import to_arrays
from apex_agents.runs.checkpoints import save_checkpoint
from apex_agents.runs.parameter_file import save_parameters

STEPS = 1234
NAME = "learner-000000001234"

DQN = ApexDQNConfig(network="mlp", mlp_hidden_sizes=(8, 4), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 4), critic_hidden_sizes=(8, 4))


def make_spec(task: str) -> EnvironmentSpec:
    return make_vector_environment(EnvironmentConfig("toy", task), 1, 0).spec


class Agent:
    """An agent whose variables all differ, and what it has saved in a folder."""

    def __init__(self, name: str):
        if name == "dqn":
            self.builder, self.spec = ApexDQNBuilder(DQN), make_spec("catch")
            networks = [self.builder._make_network(self.spec, seed) for seed in (1, 2)]
            self.update = DQNUpdate(*networks, DQN)
        else:
            self.builder, self.spec = ApexDPGBuilder(DPG), make_spec("point_mass")
            networks = [self.builder._make_networks(self.spec, seed) for seed in (1, 2)]
            self.update = DPGUpdate(*networks, DPG)
        random = np.random.default_rng(0)
        for key, part in self.update.state.items():
            if "optimizer" not in key and key != "num_updates":  # Targets, too.
                for variable in part.variables:
                    variable.assign(random.normal(size=variable.shape))

    def save(self, workdir: pathlib.Path) -> None:
        folder = workdir / "checkpoints"
        folder.mkdir()
        variables = to_arrays(self.update.variables)
        assert save_checkpoint(folder, self.update.state, variables, Progress(STEPS), keep=1)
        assert save_parameters(folder / "best.npz", variables, STEPS)

    def make_policy(self):
        return self.builder.make_evaluation_policy(self.spec, num_envs=2, seed=5)


@pytest.fixture(scope="module", params=["dqn", "dpg"])
def agent(request) -> Agent:
    return Agent(request.param)


@pytest.mark.parametrize("name", ["best", NAME])
def test_a_policy_gets_what_the_learner_had(tmp_path, agent, name):
    agent.save(tmp_path)
    policy = agent.make_policy()
    assert load_into(policy, find_parameters(tmp_path, name)) == STEPS
    for key, variables in agent.update.variables.items():
        for loaded, learned in zip(policy.variables[key], variables, strict=True):
            np.testing.assert_array_equal(loaded.numpy(), learned.numpy())


@pytest.mark.parametrize("name", ["best", NAME])
def test_parameters_of_other_networks_are_refused(tmp_path, agent, name):
    other = Agent("dpg" if isinstance(agent.builder, ApexDQNBuilder) else "dqn")
    other.save(tmp_path)
    with pytest.raises(ValueError, match="does not fit the networks of the run: ") as caught:
        load_into(agent.make_policy(), find_parameters(tmp_path, name))
    assert "\n" not in str(caught.value)


def test_parameters_of_another_shape_are_refused(tmp_path, agent):
    arrays = to_arrays(agent.update.variables)
    name = next(iter(arrays))
    arrays[name][0] = arrays[name][0][..., :-1]
    save_parameters(tmp_path / "best.npz", arrays, 1)
    with pytest.raises(ValueError, match=f"run: the shapes of '{name}' differ"):
        load_into(agent.make_policy(), tmp_path / "best.npz")


def test_damaged_parameters(tmp_path, agent):
    agent.save(tmp_path)
    policy, folder = agent.make_policy(), tmp_path / "checkpoints"
    for content in (b"PK\3\4" + bytes(100), b"", b"text"):
        (folder / "best.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"best\.npz cannot be read: "):
            load_into(policy, folder / "best.npz")
    with pytest.raises(ValueError, match=r"gone\.npz cannot be read: "):
        load_into(policy, folder / "gone.npz")
    state = folder / NAME / "state.data-00000-of-00001"
    state.write_bytes(state.read_bytes()[:-9] + b"\1" * 9)
    with pytest.raises(ValueError, match=f"{NAME} cannot be read: "):
        load_into(policy, folder / NAME)
    (folder / NAME / "progress.json").unlink()
    with pytest.raises(ValueError, match=f"{NAME} cannot be read: .*No such file"):
        load_into(policy, folder / NAME)


@pytest.fixture
def workdir(tmp_path) -> pathlib.Path:
    """A folder with parameters of all kinds, whose content does not matter here."""
    folder = tmp_path / "run" / "checkpoints"
    for age, name in enumerate([NAME, "learner-000000001300"]):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (1000 + age, 1000 + age))
    (folder / "learner-000000001400.partial").mkdir()
    (folder / "replay").mkdir()
    for name, age in (("best.npz", 5000), ("last.npz", 2000)):
        (folder / name).write_text("")
        os.utime(folder / name, (age, age))
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


def test_the_last_parameters_of_a_run_that_goes_on(workdir):
    folder = workdir / "checkpoints"
    os.utime(folder / "learner-000000001300", (3000, 3000))  # After the end before.
    assert find_parameters(workdir, "last") == folder / "learner-000000001300"
    (folder / "last.npz").unlink()
    os.utime(folder / NAME, (4000, 4000))
    assert find_parameters(workdir, "last") == folder / NAME


def test_parameters_are_found_by_path(workdir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(workdir / "checkpoints" / "best.npz", tmp_path / "mine.npz")
    assert find_parameters(workdir, "mine.npz") == pathlib.Path("mine.npz")
    path = f"run/checkpoints/{NAME}"
    assert find_parameters(workdir, path) == pathlib.Path(path)


@pytest.mark.parametrize(
    "checkpoint", ["learner-7", "newest", "learner-000000001400", "replay", ""]
)
def test_unknown_names_say_what_there_is(workdir, checkpoint):
    with pytest.raises(ValueError) as caught:
        find_parameters(workdir, checkpoint)
    there = f"best, last, {NAME}, learner-000000001300"
    assert str(caught.value) == f"--checkpoint={checkpoint} is not there; there are {there}."


@pytest.mark.parametrize("checkpoint", ["gone.npz", "./best"])
def test_unknown_paths(workdir, checkpoint):
    with pytest.raises(ValueError, match=f"^--checkpoint={checkpoint}: there is no such file or"):
        find_parameters(workdir, checkpoint)


@pytest.mark.parametrize("checkpoint", ["best", "last", "learner-7"])
def test_a_run_without_parameters(tmp_path, checkpoint):
    with pytest.raises(ValueError, match=f"^--workdir={tmp_path} has no parameters yet: check"):
        find_parameters(tmp_path, checkpoint)
