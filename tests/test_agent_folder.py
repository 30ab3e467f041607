"""Tests of folders with agents to hand on, from folders of runs."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil

import gymnasium
import numpy as np
import pytest
from tiny_runs import make_run, spoil_for_float16

import apex_agents
from apex_agents import ApexDPGConfig, ApexDQNConfig, EnvironmentConfig, ExperimentConfig, user_code
from apex_agents.agent_folder import write_agent_folder
from apex_agents.export import ExportError
from apex_agents.runs.parameter_file import read_parameters, save_parameters

DQN = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))
BOTH_AGENTS = pytest.mark.parametrize(
    ("agent", "environment"),
    [
        (DQN, EnvironmentConfig("toy", "catch")),
        (DPG, EnvironmentConfig("gymnasium", "Pendulum-v1")),
    ],
)
EVALUATIONS = """\
learner_steps,actor_steps,wall_time_seconds,mean_return,standard_error,num_episodes
1000,16000,60.0,-0.5,0.1,20
1234,20000,90.0,0.75,0.05,20
"""
REGISTERING = """
import apex_agents
import gymnasium
from gymnasium import spaces

class HandedOn(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 1, (10, 5)), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}

def get_config():
    gymnasium.register("HandedOn-v0", entry_point=HandedOn)
"""
SUMMARY = {
    "versions": {"python": "3.10.1", "tensorflow": "2.15.1"},
    "command": "/home/me/.venv/bin/apex-dqn --config=../me/my.py '--workdir=/home/my name/a run' "
    """--config.environment.kwargs='{"map": "/home/me/map.txt"}' --config.run.seed=3""",
    "git_commit": "7f3a",
}
EVALUATION = {
    "learner_steps": 1234,
    "mean_return": 0.5,
    "standard_error": 0.25,
    "episodes": 30,
    "seed": 2,
    "epsilon": 0.001,
}


@pytest.fixture
def run(tmp_path) -> pathlib.Path:
    """A run that has been evaluated, twice in training and twice after it."""
    folder = tmp_path / "run"
    make_run(folder, DQN, EnvironmentConfig("toy", "catch"), "last.npz")
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "evaluator.csv").write_text(EVALUATIONS)
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    for steps in (1234, 5678):
        path = folder / "evaluations" / f"after-{steps}" / "summary.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**EVALUATION, "learner_steps": steps}))
    return folder


def test_the_folder_acts_as_the_run_does(run, tmp_path):
    write_agent_folder(run, tmp_path / "agent", "best", False)
    policies = [apex_agents.load(folder) for folder in (run, tmp_path / "agent")]
    observations = np.random.default_rng(0).normal(size=[5, *policies[0].spec.observations.shape])
    values = [policy.q_values(observations) for policy in policies]
    np.testing.assert_array_equal(*values)
    assert policies[1].learner_steps == 1234
    files = {path.name for path in (tmp_path / "agent").rglob("*") if path.is_file()}
    assert files == {"agent.json", "config.json", "README.md", "best.npz"}


def test_the_card_says_what_was_trained_and_what_it_returns(run, tmp_path):
    write_agent_folder(run, tmp_path / "agent", "best", False)
    card = (tmp_path / "agent" / "README.md").read_text()
    size = sum(
        array.size for array in read_parameters(run / "checkpoints/best.npz").arrays.values()
    )
    for line in (
        "# catch by Ape-X DQN",
        "| task | catch, suite toy |",
        f"| parameters | {size:,} |",
        "| learner steps | 1,234 |",
        "| agent steps | 20,000 |",
        "| wall time | 1.5 min |",
        "| return when it was saved | 0.75 ± 0.05, 20 episodes |",
        "| return of `after-1234` | 0.50 ± 0.25, 30 episodes, seed 2, epsilon 0.001 |",
        "| command | `apex-dqn --config=my.py "
        """'--config.environment.kwargs={"map": "map.txt"}' --config.run.seed=3` |""",
        "| versions | python 3.10.1, tensorflow 2.15.1 |",
    ):
        assert line in card.splitlines()
    assert "after-5678" not in card
    assert "license" not in card


def test_no_path_of_this_machine_is_handed_on(run, tmp_path):
    """The run remembers where the code of its user is."""
    assert "user_code" in json.loads((run / "config.json").read_text())
    write_agent_folder(run, tmp_path / "agent", "best", False)
    for path in (tmp_path / "agent").glob("*.*"):
        assert "user_code" not in path.read_text()
        assert str(tmp_path) not in path.read_text()
        assert "/home" not in path.read_text()


class OtherUpdate(apex_agents.ApexDQNBuilder):
    pass


class OtherNetworks(apex_agents.ApexDQNBuilder):
    def make_networks(self, spec, seed=0, **options):
        return super().make_networks(spec, seed + 1, **options)


@pytest.mark.parametrize(("kind", "is_needed"), [(OtherUpdate, False), (OtherNetworks, True)])
def test_a_builder_of_the_users_is_handed_on_if_it_makes_the_networks(tmp_path, kind, is_needed):
    name = f"{__name__}:{kind.__name__}"
    agent = dataclasses.replace(DQN, builder=name)
    make_run(tmp_path / "run", agent, EnvironmentConfig("toy", "catch"))
    write_agent_folder(tmp_path / "run", tmp_path / "agent", "best", False)
    values = json.loads((tmp_path / "agent" / "config.json").read_text())
    assert values["agent"]["builder"] == (name if is_needed else "standard")
    assert apex_agents.load(tmp_path / "agent").learner_steps == 1234


def read_both(folder: pathlib.Path) -> list[dict[str, np.ndarray]]:
    """Return the parameters of a run and those of the agent that was made of it."""
    paths = [folder / name / "checkpoints" / "best.npz" for name in ("run", "agent")]
    return [read_parameters(path).arrays for path in paths]


@BOTH_AGENTS
def test_half_the_precision(tmp_path, agent, environment):
    make_run(tmp_path / "run", agent, environment)
    difference = write_agent_folder(tmp_path / "run", tmp_path / "agent", "best", True).difference
    assert 0 < difference < 1e-2
    whole, half = read_both(tmp_path)
    assert {array.dtype for array in half.values()} == {np.dtype(np.float16)}
    for name, array in half.items():
        np.testing.assert_allclose(array, whole[name], rtol=1e-3, atol=1e-7)
    policy = apex_agents.load(tmp_path / "agent")
    assert {variable.dtype.as_numpy_dtype for variable in policy.network.variables} == {np.float32}
    policy.act(np.zeros(policy.spec.observations.shape, np.float32))


@BOTH_AGENTS
def test_statistics_of_observations_are_not_rounded(tmp_path, agent, environment):
    agent = dataclasses.replace(agent, normalize_observations=True)
    make_run(tmp_path / "run", agent, environment)
    path = tmp_path / "run" / "checkpoints" / "best.npz"
    arrays = read_parameters(path).arrays
    statistics = [name for name in arrays if "normalization/" in name]
    for name in statistics:
        value = {"mean": 1000.37, "variance": 3e-9, "count": 70_000}[name.split("/")[-1]]
        arrays[name][...] = value
    assert save_parameters(path, arrays, 1234)
    write_agent_folder(tmp_path / "run", tmp_path / "agent", "best", True)
    whole, half = read_both(tmp_path)
    assert len(statistics) >= 3
    for name, array in half.items():
        assert array.dtype == (whole[name].dtype if name in statistics else np.float16)
    for name in statistics:
        np.testing.assert_array_equal(half[name], whole[name])


def test_rounding_that_changes_what_the_network_computes_is_refused(run, tmp_path):
    spoil_for_float16(run)
    with pytest.raises(ExportError, match=r"differ .* by up to 8.0e-01, more than"):
        write_agent_folder(run, tmp_path / "agent", "best", True)
    assert not (tmp_path / "agent").exists()


def test_what_does_not_fit_into_half_the_precision_is_refused(run, tmp_path):
    path = run / "checkpoints" / "best.npz"
    parameters = read_parameters(path)
    name = sorted(parameters.arrays)[0]
    parameters.arrays[name][:] = 1e5
    assert save_parameters(path, parameters.arrays, 1234)
    with pytest.raises(ValueError, match=f"{name} has values of up to 100000, beyond float16"):
        write_agent_folder(run, tmp_path / "agent", "best", True)
    assert not (tmp_path / "agent").exists()


def test_an_agent_may_be_written_again(run, tmp_path):
    for checkpoint in ("best", "last"):
        write_agent_folder(run, tmp_path / "agent", checkpoint, False)
    assert apex_agents.load(tmp_path / "agent").learner_steps == 5678


def test_an_agent_can_be_made_of_an_agent(run, tmp_path):
    write_agent_folder(run, tmp_path / "agent", "best", False)
    write_agent_folder(tmp_path / "agent", tmp_path / "copy", "best", True)
    assert apex_agents.load(tmp_path / "copy").learner_steps == 1234
    cards = [(tmp_path / name / "README.md").read_text() for name in ("agent", "copy")]
    lines = [set(card.splitlines()) for card in cards]
    assert [line.partition(",")[2] for line in lines[1] - lines[0]] != []
    assert all("| parameters |" in line for line in lines[1] ^ lines[0])


def test_the_license_stays_with_the_agent_until_another_one_is_named(run, tmp_path):
    for source, folder, name in [
        (run, "agent", "MIT"),
        (tmp_path / "agent", "copy", None),
        (tmp_path / "agent", "another", "Apache-2.0"),
    ]:
        write_agent_folder(source, tmp_path / folder, "best", False, name)
        lines = (tmp_path / folder / "README.md").read_text().splitlines()
        licenses = [line for line in lines if line.startswith("| license |")]
        assert licenses == [f"| license | {name or 'MIT'} |"]


def test_what_is_in_the_way_is_left_alone(run, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    for output in (folder, run):
        before = {p: p.read_bytes() for p in output.rglob("*") if p.is_file()}
        with pytest.raises(ValueError, match="holds something else than an agent; name a new"):
            write_agent_folder(run, output, "best", False)
        assert {p: p.read_bytes() for p in output.rglob("*") if p.is_file()} == before


def test_an_agent_is_not_trained_on(run, tmp_path):
    """A run there would begin from nothing, and replace the parameters."""
    write_agent_folder(run, tmp_path / "agent", "best", False)
    experiment = apex_agents.make_experiment(
        ExperimentConfig(DQN, EnvironmentConfig("toy", "catch")), workdir=str(tmp_path / "agent")
    )
    with pytest.raises(ValueError, match="holds an agent, not a run"):
        apex_agents.make_program(experiment)


def test_the_returns_of_other_parameters_are_not_theirs(run, tmp_path):
    other = tmp_path / "other.npz"
    shutil.copy(run / "checkpoints" / "best.npz", other)
    write_agent_folder(run, tmp_path / "agent", str(other), False)
    card = (tmp_path / "agent" / "README.md").read_text()
    assert "return" not in card.partition("```")[0]
    assert "| command |" not in card


def test_an_id_that_only_the_runs_config_file_registers_cannot_be_handed_on(run, tmp_path):
    (tmp_path / "settings.py").write_text(REGISTERING)
    values = json.loads((run / "config.json").read_text())
    values["environment"] |= {"suite": "gymnasium", "task": "HandedOn-v0"}
    del values["environment_spec"]
    values["user_code"]["config_file"] = str(tmp_path / "settings.py")
    # The run also keeps what the file has registered, for commands on this machine.
    user_code.kept.clear()
    code: dict = {"__name__": "__main__"}
    exec(REGISTERING, code)
    code["get_config"]()
    user_code.kept["id:HandedOn-v0"] = gymnasium.registry.pop("HandedOn-v0")
    values["user_code"]["functions"] = user_code.record("HandedOn-v0")["functions"]
    user_code.kept.clear()
    (run / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"'HandedOn-v0'.* needs it in a module"):
        write_agent_folder(run, tmp_path / "agent", "best", False)
    assert not (tmp_path / "agent").exists()


@pytest.mark.parametrize("module", ["__main__", "apex_agents_config_my_settings"])
def test_functions_of_a_script_or_a_config_file_cannot_be_handed_on(run, tmp_path, module):
    values = json.loads((run / "config.json").read_text())
    values["environment"]["kwargs"] = {"make": f"{module}:make_env"}
    (run / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="or of its config file, which others do not have"):
        write_agent_folder(run, tmp_path / "agent", "best", False)


def test_evaluations_that_cannot_be_read_are_left_out(run, tmp_path):
    for name, text in {
        "writing": '{"learner_steps": 12',
        "other": '{"learner_steps": 1234}',
    }.items():
        path = run / "evaluations" / name / "summary.json"
        path.parent.mkdir()
        path.write_text(text)
    write_agent_folder(run, tmp_path / "agent", "best", False)
    assert "return of `after-1234`" in (tmp_path / "agent" / "README.md").read_text()
