"""Tests of config.json: read back as a config, and compared with another one."""

import copy
import dataclasses
import functools
import json
import pathlib
import re
import sys
from typing import Any

import gymnasium
import pytest

from apex_agents import user_code
from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.experiment import make_experiment
from apex_agents.registry import make_builder
from apex_agents.runs.config_file import (
    agent_name,
    check_same_run,
    read_config,
    read_values,
    to_file,
    to_values,
)

AGENTS = (ApexDQNConfig, ApexDPGConfig)

DQN = ExperimentConfig(
    agent=ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(64, 32), frame_stack=0, discount=1),
    environment=EnvironmentConfig("gymnasium", "CartPole-v1", {"sutton_barto_reward": True}, 300),
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


def write(folder: pathlib.Path, values: Any) -> None:
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("config", [DQN, DPG], ids=["dqn", "dpg"])
def test_a_config_is_read_back_as_it_was(tmp_path, config):
    write(tmp_path, to_values(config))
    found = read_config(tmp_path, AGENTS)
    assert found == config
    assert type(found) is ExperimentConfig
    check_same_run(tmp_path, config)


TUPLES = {"shape": (84, 84), "deep": [{"pair": (1, (2.5, None))}], "list": [84, 84], "none": ()}


def test_tuples_in_kwargs_are_tuples_when_a_run_is_resumed(tmp_path):
    environment = EnvironmentConfig("gymnasium", "CartPole-v1", TUPLES, evaluation_kwargs=TUPLES)
    config = dataclasses.replace(DQN, environment=environment)
    write(tmp_path, to_file(config))
    found = read_config(tmp_path, AGENTS)
    assert found == config
    assert type(found.environment.kwargs["deep"][0]["pair"][1]) is tuple
    assert type(found.environment.kwargs["list"]) is list
    check_same_run(tmp_path, config)
    # A field that is declared as a tuple needs no mark: files of older versions have none.
    assert read_values(tmp_path)["agent"]["mlp_hidden_sizes"] == [64, 32]
    environment = dataclasses.replace(environment, kwargs={**TUPLES, "shape": [84, 84]})
    with pytest.raises(ValueError, match=r"kwargs\.shape \(84, 84\), not \[84, 84\];"):
        check_same_run(tmp_path, dataclasses.replace(config, environment=environment))


@dataclasses.dataclass
class OwnConfig(ApexDQNConfig):
    own_rate: float = 0.5
    betas: tuple[float, ...] = (0.9, 0.99)
    layers: tuple[tuple[str, int], ...] | None = None


def test_a_config_class_of_the_users_is_found_again(tmp_path):
    own = OwnConfig(own_rate=0.25, betas=(0.5,), layers=(("a", 1), ("b", 2)))
    config = ExperimentConfig(own, run=RunConfig(max_actor_steps=9))
    values = to_values(config)
    write(tmp_path, values)
    found = read_config(tmp_path, AGENTS)
    assert (found, type(found.agent)) == (config, OwnConfig)
    check_same_run(tmp_path, config)
    assert agent_name(values["agent_type"]) == "Own"
    write(tmp_path, {**values, "agent_type": f"{__name__}:ExperimentConfig"})
    with pytest.raises(ValueError, match="ExperimentConfig'; it has to be one of"):
        read_config(tmp_path, AGENTS)


IN_A_CONFIG_FILE = """
import dataclasses
import apex_agents

@dataclasses.dataclass
class Mine(apex_agents.ApexDQNConfig):
    own_rate: float = 0.5

class MyBuilder(apex_agents.ApexDQNBuilder):
    pass

def get_config():
    return apex_agents.ExperimentConfig(Mine(builder=f"{__name__}:MyBuilder"))
"""


def test_classes_of_the_config_file_are_found_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "my_settings.py"
    path.write_text(IN_A_CONFIG_FILE)
    config = user_code.execute_config_file(path)
    write(tmp_path, to_file(config))
    # Imitate a different process, which has not executed the file.
    del sys.modules["apex_agents_config_my_settings"]
    found = read_config(tmp_path, AGENTS).agent
    assert (type(found).__name__, found.own_rate) == ("Mine", 0.5)
    assert type(make_builder(found)).__name__ == "MyBuilder"
    del sys.modules["apex_agents_config_my_settings"]
    with pytest.raises(ValueError, match="cannot be imported"):
        read_config(tmp_path, AGENTS, with_file=False)


REGISTERING = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

def get_config():
    gymnasium.register("Registered-v0", entry_point=CartPoleEnv)
"""


@pytest.mark.parametrize("has_file", [True, False])
def test_an_id_that_the_settings_have_registered_is_found_again(tmp_path, monkeypatch, has_file):
    user_code.kept.clear()
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "settings.py").write_text(REGISTERING)
    values = change(to_values(DQN), "environment.task", "Registered-v0")
    values["user_code"] = {
        "config_file": str(tmp_path / "settings.py") if has_file else None,
        "python_path": [str(tmp_path)],
    }
    write(tmp_path, values)
    if has_file:
        assert read_config(tmp_path, AGENTS).environment.task == "Registered-v0"
        del gymnasium.registry["Registered-v0"]
    else:
        with pytest.raises(ValueError, match="Registered-v0"):
            read_config(tmp_path, AGENTS)
    assert str(tmp_path) in sys.path
    assert "user_code" not in read_values(tmp_path)  # It is no setting of the run.


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
    ("path", "value", "named"),
    [
        ("agent.new", 3, "new"),
        ("run.evaluation.new", 3, "new"),
        ("new", {}, "new"),
        ("environment", None, "environment"),
        ("agent", None, "agent"),
        ("run", 3, "run"),
        ("agent", [1], "agent"),
        ("run.evaluation.num_episodes", "x", "run.evaluation.num_episodes"),
        ("agent.batch_size", 0, "agent.batch_size"),
        ("agent.mlp_hidden_sizes", 3, "agent.mlp_hidden_sizes"),
        ("agent.mlp_hidden_sizes", ["x"], "agent.mlp_hidden_sizes"),
        ("environment.task", "CartPol-v1", "CartPol-v1"),
        ("agent_type", "Rainbow", "agent_type"),
        ("agent_type", ["x"], "agent_type"),
        ("agent_type", None, "agent_type"),
        ("format_version", 0, "format_version"),
    ],
)
def test_other_files_are_refused_with_the_name_of_the_field(tmp_path, path, value, named):
    write(tmp_path, change(to_values(DQN), path, value))
    with pytest.raises(ValueError) as caught:
        read_config(tmp_path, AGENTS)
    message = str(caught.value)
    assert message.startswith(str(tmp_path))
    assert named in message.removeprefix(str(tmp_path))
    assert "\n" not in message


def test_a_config_can_be_read_for_its_own_agent_only(tmp_path):
    write(tmp_path, to_values(DQN))
    with pytest.raises(ValueError, match="agent_type is 'ApexDQNConfig'"):
        read_config(tmp_path, [ApexDPGConfig])


@pytest.mark.parametrize("content", [None, b"{", b"[" * 100_000, b"[]", b"\xff"])
def test_a_folder_without_a_config(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    for read in (
        lambda: read_config(tmp_path, AGENTS),
        lambda: check_same_run(tmp_path, DQN),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path))} holds no run"):
            read()
    with pytest.raises(ValueError, match="missing is no folder"):
        read_config(tmp_path / "missing", AGENTS)


@pytest.mark.fault(
    breaks="the `--workdir` of a run with another agent or environment",
    holds="refused, with the first field that differs",
)
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("environment.task", "MountainCar-v0", "environment.task 'MountainCar-v0', not 'Cart"),
        ("agent.replay.max_size", 4, "agent.replay.max_size 4, not 2000000"),
        ("agent.mlp_hidden_sizes", [1], "agent.mlp_hidden_sizes [1], not [64, 32]"),
        ("agent.replay", 4, "agent.replay 4, not {"),
        ("agent.new", 1, "agent.new 1, not None"),
        ("agent_type", "ApexDPGConfig", "agent_type 'ApexDPGConfig', not 'ApexDQNConfig'"),
        ("format_version", None, "format_version None, not 2"),
    ],
)
def test_a_run_is_not_resumed_as_another(tmp_path, path, value, message):
    write(tmp_path, change(to_values(DQN), path, value))
    with pytest.raises(ValueError) as caught:
        check_same_run(tmp_path, DQN)
    assert f"The folder {tmp_path} holds a run with {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [("agent.bfloat16", True), ("agent.replay.replicas", 2), ("environment.action_repeat", 2)],
)
def test_a_field_that_an_older_version_did_not_have_had_its_default(tmp_path, path, value):
    values = to_values(DQN)
    *sections, name = path.split(".")
    del functools.reduce(dict.__getitem__, sections, values)[name]
    write(tmp_path, values)
    check_same_run(tmp_path, DQN)
    changed = copy.deepcopy(DQN)
    setattr(functools.reduce(getattr, sections, changed), name, value)
    with pytest.raises(ValueError, match=path):
        check_same_run(tmp_path, changed)


def test_a_run_goes_on_with_the_usual_number_of_steps_per_action_if_it_had_that(tmp_path):
    environment = EnvironmentConfig("control", "hopper:stand", action_repeat=None)
    config = ExperimentConfig(ApexDPGConfig(), environment)
    recorded = make_experiment(config).config
    assert recorded.environment.action_repeat == 4
    write(tmp_path, to_file(recorded))
    check_same_run(tmp_path, config)
    environment.action_repeat = 8
    with pytest.raises(ValueError, match=r"environment\.action_repeat 4, not 8"):
        check_same_run(tmp_path, config)


@dataclasses.dataclass(kw_only=True)
class RequiringConfig(ApexDQNConfig):
    own_rate: float


def test_a_class_with_a_field_without_default_has_the_defaults_of_the_others(tmp_path):
    config = ExperimentConfig(RequiringConfig(own_rate=0.5))
    values = to_values(config)
    del values["agent"]["max_gradient_norm"]  # Of an older version.
    write(tmp_path, values)
    check_same_run(tmp_path, config)
    config.agent.max_gradient_norm = 1.0
    with pytest.raises(ValueError, match=r"max_gradient_norm 40\.0, not 1\.0"):
        check_same_run(tmp_path, config)


def test_an_older_version_did_not_say_which_builder_it_had(tmp_path):
    values = to_values(DQN)
    del values["agent"]["builder"]
    write(tmp_path, values)
    for name in ("standard", "mine:Builder"):
        agent = dataclasses.replace(DQN.agent, builder=name)
        check_same_run(tmp_path, dataclasses.replace(DQN, agent=agent))


@pytest.mark.parametrize(
    ("recorded", "sizes", "config", "is_same"),
    [
        ("mlp", [16], "auto", True),  # Written by a version without 'auto', or in vectors.
        ("conv", [32, 64, 64], "auto", True),
        ("auto", [16], "mlp", True),
        ("mlp", [16], "conv", False),
    ],
)
def test_a_torso_that_the_environment_decides_on(tmp_path, recorded, sizes, config, is_same):
    values = to_values(DQN)
    values["agent"] |= {"torso": recorded, "conv_channels": sizes}
    write(tmp_path, values)
    new = dataclasses.replace(DQN, agent=dataclasses.replace(DQN.agent, torso=config))
    if is_same:
        return check_same_run(tmp_path, new)
    with pytest.raises(ValueError, match=r"agent\.torso 'mlp', not 'conv'"):
        check_same_run(tmp_path, new)


def test_a_run_is_resumed_with_other_limits(tmp_path):
    values = to_values(DQN)
    values["environment"]["max_episode_steps"] = 100
    values["run"] = {"max_learner_steps": 9, "new": 1}
    write(tmp_path, values)
    check_same_run(tmp_path, DQN)
