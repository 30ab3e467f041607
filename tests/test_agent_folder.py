"""Tests of folders with agents to hand on, from folders of runs."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from tiny_runs import make_run

import apex_agents
from apex_agents import ApexDPGConfig, ApexDQNConfig, EnvironmentConfig
from apex_agents.agent_folder import write_agent_folder
from apex_agents.evaluation.parameters import read_parameters
from apex_agents.runs.parameter_file import save_parameters

DQN = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))
EVALUATIONS = """\
learner_steps,actor_steps,wall_time_seconds,mean_return,standard_error,num_episodes
1000,16000,60.0,-0.5,0.1,20
1234,20000,90.0,0.75,0.05,20
"""
SUMMARY = {
    "versions": {"python": "3.10.1", "tensorflow": "2.15.1"},
    "command": "apex-dqn --config=apex_dqn_catch",
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
    assert files == {"config.json", "README.md", "best.npz"}


def test_the_card_says_what_was_trained_and_what_it_returns(run, tmp_path):
    write_agent_folder(run, tmp_path / "agent", "best", False)
    card = (tmp_path / "agent" / "README.md").read_text()
    size = sum(
        array.size for array in read_parameters(run / "checkpoints/best.npz").arrays.values()
    )
    for line in (
        "# catch by Ape-X DQN",
        "| task | catch, suite toy |",
        f"| parameters | {size:,} (float32) |",
        "| learner steps | 1,234 |",
        "| agent steps | 20,000 |",
        "| wall time | 1.5 min |",
        "| return when it was saved | 0.75 ± 0.05, 20 episodes |",
        "| return of `after-1234` | 0.50 ± 0.25, 30 episodes, seed 2, epsilon 0.001 |",
        "| command | `apex-dqn --config=apex_dqn_catch` |",
        "| versions | python 3.10.1, tensorflow 2.15.1 |",
    ):
        assert line in card.splitlines()
    assert "after-5678" not in card


def test_no_path_of_this_machine_is_handed_on(run, tmp_path):
    """The run remembers where the code of its user is."""
    assert "user_code" in json.loads((run / "config.json").read_text())
    write_agent_folder(run, tmp_path / "agent", "best", False)
    for path in (tmp_path / "agent").glob("*.*"):
        assert "user_code" not in path.read_text()
        assert str(tmp_path) not in path.read_text()


@pytest.mark.parametrize(
    ("agent", "environment"),
    [
        (DQN, EnvironmentConfig("toy", "catch")),
        (DPG, EnvironmentConfig("gymnasium", "Pendulum-v1")),
    ],
)
def test_half_the_precision(tmp_path, agent, environment):
    make_run(tmp_path / "run", agent, environment)
    write_agent_folder(tmp_path / "run", tmp_path / "agent", "best", True)
    whole, half = [
        read_parameters(tmp_path / folder / "checkpoints" / "best.npz").arrays
        for folder in ("run", "agent")
    ]
    assert {array.dtype for array in half.values()} == {np.dtype(np.float16)}
    for name, array in half.items():
        np.testing.assert_allclose(array, whole[name], rtol=1e-3, atol=1e-7)
    policy = apex_agents.load(tmp_path / "agent")
    assert {variable.dtype.as_numpy_dtype for variable in policy.network.variables} == {np.float32}
    policy.act(np.zeros(policy.spec.observations.shape, np.float32))


def test_what_does_not_fit_into_half_the_precision_is_refused(run, tmp_path):
    path = run / "checkpoints" / "best.npz"
    parameters = read_parameters(path)
    name = sorted(parameters.arrays)[0]
    parameters.arrays[name][:] = 1e5
    assert save_parameters(path, parameters.arrays, 1234)
    with pytest.raises(ValueError, match=f"{name} has values of up to 100000, beyond float16"):
        write_agent_folder(run, tmp_path / "agent", "best", True)
    assert not (tmp_path / "agent").exists()


def test_an_agent_may_be_written_again_but_not_over_a_run(run, tmp_path):
    for checkpoint in ("best", "last"):
        write_agent_folder(run, tmp_path / "agent", checkpoint, False)
    assert apex_agents.load(tmp_path / "agent").learner_steps == 5678
    with pytest.raises(ValueError, match="holds a run; name a new folder"):
        write_agent_folder(tmp_path / "agent", run, "best", False)


def test_an_agent_can_be_made_of_an_agent(run, tmp_path):
    write_agent_folder(run, tmp_path / "agent", "best", False)
    write_agent_folder(tmp_path / "agent", tmp_path / "copy", "best", True)
    assert apex_agents.load(tmp_path / "copy").learner_steps == 1234
