"""Tests of the way back from config.json to a config."""

import dataclasses
import json
import pathlib
import re
from typing import Any

import pytest

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig
from apex_agents.runs import workdir
from apex_agents.runs.config_file import read_config
from apex_agents.runs.workdir import open_workdir

AGENTS = (ApexDQNConfig, ApexDPGConfig)

DQN = ExperimentConfig(
    agent=ApexDQNConfig(network="mlp", mlp_hidden_sizes=(64, 32), frame_stack=0, discount=1),
    environment=EnvironmentConfig("gymnasium", "CartPole-v1", AtariConfig(clip_rewards=False)),
    run=RunConfig(
        max_learner_steps=7,
        target_return=None,
        evaluation=EvaluationConfig(num_episodes=3, video_period_seconds=60.0),
    ),
)
DPG = ExperimentConfig(
    agent=ApexDPGConfig(policy_hidden_sizes=(8, 9)),
    environment=EnvironmentConfig("control", "humanoid:walk"),
    run=RunConfig(),
)


def write(folder: pathlib.Path, config: ExperimentConfig) -> dict[str, Any]:
    """Write a config as a run does; return what is in the file."""
    open_workdir(str(folder), "name", config)
    workdir._locks.pop().close()
    return json.loads((folder / "config.json").read_text())


def rewrite(folder: pathlib.Path, values: Any) -> None:
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("config", [DQN, DPG], ids=["dqn", "dpg"])
def test_a_config_comes_back_as_it_was(tmp_path, config):
    values = write(tmp_path, config)
    assert values["agent_type"] == type(config.agent).__name__
    assert read_config(tmp_path, AGENTS) == config


@pytest.mark.parametrize("config", [DQN, DPG], ids=["dqn", "dpg"])
def test_an_older_file_names_no_agent(tmp_path, config):
    values = write(tmp_path, config)
    del values["agent_type"]
    rewrite(tmp_path, values)
    assert read_config(tmp_path, AGENTS) == config
    with pytest.raises(ValueError, match="there is no agent_type, and the fields of agent"):
        read_config(tmp_path, [kind for kind in AGENTS if kind is not type(config.agent)])


def test_fields_that_an_older_version_did_not_have_get_their_defaults(tmp_path):
    values = write(tmp_path, DQN)
    del values["run"]["evaluation"]["video_period_seconds"]
    del values["agent"]["replay"]["eviction_policy"]
    rewrite(tmp_path, values)
    config = read_config(tmp_path, AGENTS)
    assert config.run.evaluation == EvaluationConfig(num_episodes=3)
    assert config.agent == DQN.agent


def test_a_run_from_before_goes_on_and_gets_the_name_of_its_agent(tmp_path):
    values = write(tmp_path, DQN)
    del values["agent_type"]
    rewrite(tmp_path, values)
    assert write(tmp_path, DQN)["agent_type"] == "ApexDQNConfig"


def test_a_run_of_another_agent_is_refused_by_its_name(tmp_path):
    write(tmp_path, DQN)
    message = "holds a run with agent_type 'ApexDQNConfig', not 'ApexDPGConfig'"
    with pytest.raises(ValueError, match=message):
        write(tmp_path, DPG)


def change(values: Any, path: str, value: Any) -> Any:
    *groups, name = path.split(".")
    group = values
    for part in groups:
        group = group[part]
    if value is None:
        del group[name]
    else:
        group[name] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("agent.new", 3, "agent.new is no field of this version."),
        ("run.evaluation.new", 3, "run.evaluation.new is no field of this version."),
        ("new", {}, "new is no field of this version."),
        ("environment", None, "environment is missing."),
        ("run", 3, "run is 3; it has to be a group of fields."),
        ("agent", [1], "agent is [1]; it has to be a group of fields."),
        ("agent.batch_size", "x", "agent.batch_size is 'x'; it has to be a whole number of at"),
        ("agent.batch_size", 0, "agent.batch_size is 0; it has to be between 1 and 100000."),
        ("agent.mlp_hidden_sizes", 3, "agent.mlp_hidden_sizes is 3; it has to be a tuple of"),
        ("environment.task", "CartPol-v1", "unknown gymnasium task 'CartPol-v1'; closest: Cart"),
        ("agent_type", "Rainbow", "agent_type is 'Rainbow'; known are ApexDQNConfig, ApexDPGCo"),
        ("agent_type", ["x"], "agent_type is ['x']; known are ApexDQNConfig, ApexDPGConfig."),
    ],
)
def test_files_of_another_version(tmp_path, path, value, message):
    rewrite(tmp_path, change(write(tmp_path, DQN), path, value))
    with pytest.raises(ValueError) as caught:
        read_config(tmp_path, AGENTS)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: {message}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "holds no run: it has no config.json that can be read."),
        ("[" * 100_000, "holds no run: it has no config.json that can be read."),
        ("[]", "holds no run: it has no config.json that can be read."),
        (b"\xff", "holds no run: it has no config.json that can be read."),
        (
            "{}",
            "config.json: there is no agent_type, and the fields of agent do not tell which",
        ),
    ],
)
def test_damaged_files(tmp_path, content, reason):
    path = tmp_path / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_config(tmp_path, AGENTS)


def test_folders_without_a_run(tmp_path):
    with pytest.raises(ValueError, match=f"^{tmp_path} holds no run: it has no config.json"):
        read_config(tmp_path, AGENTS)
    with pytest.raises(ValueError, match="missing is no folder; name the work directory"):
        read_config(tmp_path / "missing", AGENTS)


def test_agents_with_the_same_fields_cannot_be_told_apart(tmp_path):
    @dataclasses.dataclass
    class Twin(ApexDQNConfig):
        pass

    values = write(tmp_path, DQN)
    del values["agent_type"]
    rewrite(tmp_path, values)
    with pytest.raises(ValueError, match="do not tell which of ApexDQNConfig, Twin it is"):
        read_config(tmp_path, [ApexDQNConfig, Twin])
