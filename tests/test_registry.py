"""Tests of the list of agents, and of the experiment that is made from a config."""

import dataclasses

import pytest

import apex_agents
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.experiment import make_experiment
from apex_agents.presets import load_config
from apex_agents.registry import (
    AGENTS,
    find_agent,
    make_builder,
    with_torso_fn,
)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_found_by_its_default_settings(name):
    agent = AGENTS[name]
    config = load_config(agent.default_config)
    assert find_agent(config.agent) == name
    builder = make_builder(config.agent)
    assert type(builder) is agent.make_builder
    assert builder.config is config.agent


@pytest.mark.parametrize("name", AGENTS)
def test_a_torso_given_in_python_reaches_the_builder(name):
    def make_torso(spec, config):
        raise KeyError("made")

    experiment = make_experiment(load_config(AGENTS[name].default_config))
    builder = make_builder(experiment.builder.config, make_torso)
    with pytest.raises(ValueError, match="made"):
        builder.make_networks(experiment.environment_spec())


def test_a_torso_given_in_python_changes_no_field_of_the_users():
    @dataclasses.dataclass
    class OwnConfig(ApexDQNConfig):
        pretrained_torso: str = "weights.npz"

    config = with_torso_fn(OwnConfig(), lambda spec, config: None)
    assert config.pretrained_torso == "weights.npz" and config.torso.startswith("__main__:")


class OtherUpdate(ApexDQNBuilder):
    def make_update(self, spec, seed=0):
        raise NotImplementedError


def make_nothing(config, torso_fn):
    return config


def fail(config, torso_fn):
    raise KeyError("colour")


def test_the_settings_name_the_builder():
    kind = OtherUpdate
    config = load_config("apex_dqn_catch")
    given = make_experiment(config, builder_fn=kind)
    assert given.config.agent.builder == f"{__name__}:{kind.__name__}"
    assert type(given.builder) is kind
    named = make_experiment(given.config)
    assert type(named.builder) is kind
    assert named.builder.config is named.config.agent
    assert config.agent.builder == "standard"


def make_other(config, torso_fn):
    return ApexDQNBuilder(dataclasses.replace(config, head="quantile"), torso_fn)


def test_what_a_function_builds_may_be_anything():
    experiment = make_experiment(load_config("apex_dqn_catch"), builder_fn=make_other)
    assert experiment.builder.config.head == "quantile"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("builder", "agent.builder is 'builder'; it has to be 'standard' or"),
        (f"{__name__}:OtherUpdat", "the closest: OtherUpdate"),
        (f"{__name__}:make_nothing", "which is no builder; .* a subclass of ApexDQNBuilder"),
        (f"{__name__}:fail", "fail', called with .* raises KeyError: 'colour'"),
    ],
)
def test_a_name_of_no_builder_is_refused(name, message):
    config = load_config("apex_dqn_catch")
    config.agent.builder = name
    with pytest.raises(ValueError, match=message):
        make_experiment(config)


@pytest.mark.parametrize("config", [None, "apex_dqn", ApexDQNConfig])
def test_the_config_of_no_agent_is_refused(config):
    with pytest.raises(ValueError, match="agent is"):
        make_builder(config)


def test_an_experiment_has_the_parts_of_its_config_and_cannot_be_changed():
    config = load_config("apex_dqn_catch")
    experiment = make_experiment(config)
    assert (experiment.run, experiment.task, experiment.workdir) == (config.run, "catch", "")
    assert experiment.builder.config is config.agent
    assert experiment.environment_spec().actions.num_values == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        experiment.workdir = "elsewhere"


def test_an_experiment_is_not_made_from_an_invalid_config():
    config = load_config("apex_dqn_catch")
    config.run.num_actors = 0
    with pytest.raises(ValueError, match=r"run\.num_actors"):
        make_experiment(config)


def test_public_names_are_listed_for_completion():
    assert {*apex_agents.__all__, "__version__"} <= {*dir(apex_agents)}
    assert all(getattr(apex_agents, name).__name__ == name for name in apex_agents.__all__)
