"""Tests of the settings of a run: which values of each field are refused and which work."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from apex_agents.actor_critic.config import A2CConfig, A3CConfig
from apex_agents.command_line.fields import describe_types
from apex_agents.config import (
    ClusterConfig,
    EvaluationConfig,
    ExperimentConfig,
    NodeResources,
    RunConfig,
)
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.fields import field_paths
from apex_agents.r2d2.config import R2D2Config

AGENTS = (ApexDQNConfig, ApexDPGConfig, R2D2Config, A2CConfig, A3CConfig)
# Conditions between fields: the class of the agent, a field, values that are refused and allowed.
RULES: list[tuple[Any, str, list[Any], list[Any]]] = [
    (ApexDQNConfig, "agent.conv_kernel_sizes", [(3, 3)], [(5,)]),
    (A2CConfig, "agent.conv_strides", [(1, 1)], [(2,)]),
    (ApexDPGConfig, "agent.max_return", [-150.0, -151.0], [-149.0]),
    (ApexDPGConfig, "agent.exploration.min_noise_scale", [0.31], [0.0, 0.3]),
    (ApexDQNConfig, "agent.replay.min_size", [2_000_001], [2_000_000]),
    (ApexDQNConfig, "agent.replay.max_in_flight", [19], [20]),
    (ApexDQNConfig, "run.num_replays", [2], [1]),
    (ApexDQNConfig, "environment.action_repeat", [2], []),
]
# Bounds of a kind that no other field has, or whose limits are those of other code.
BOUNDS: list[tuple[Any, str, list[Any], list[Any]]] = [
    (ApexDPGConfig, "agent.policy_torso", ["atari", "conv", ""], ["none", "my_nets:f"]),
    (ApexDPGConfig, "agent.policy_hidden_sizes", [(64,), (64, 64, 64)], []),
    (ApexDPGConfig, "agent.target_update_rate", [0.0, 1.1], [1e-6]),
    (ApexDQNConfig, "agent.conv_channels", [()], [(32,)]),
    (ApexDQNConfig, "agent.replay.max_size", [2**31], [2**31 - 1]),
    (ApexDQNConfig, "agent.replay.priority_exponent", [-0.1, 10.1], [0.0]),
    (ApexDQNConfig, "agent.replay.eviction_exponent", [-10.1, 10.1], [0.0]),
    (ApexDQNConfig, "environment.kwargs", [{1: 2}, {"x": len}], []),
    (ApexDQNConfig, "environment.atari.sticky_action_probability", [1.0, -0.1], [0.99]),
    (ApexDQNConfig, "environment.atari.max_frames", [0, 2**31], [2**31 - 1]),
    (ApexDQNConfig, "run.evaluation.min_period_seconds", [-1.0, 1e10], [0.0]),
    (ApexDQNConfig, "run.cluster.actor.custom", ["fast", "=1", "fast=-1"], ["a=1, b=0.25,"]),
]


@dataclasses.dataclass
class EvaluationWithoutBounds(EvaluationConfig):
    """Has a number that may be any."""

    num_episodes: int = 20


def make_config(agent: Any = ApexDQNConfig) -> ExperimentConfig:
    return ExperimentConfig(agent(), EnvironmentConfig(), RunConfig())


@pytest.mark.parametrize("field", ["policy_hidden_sizes", "critic_hidden_sizes"])
def test_a_layer_of_one_unit_cannot_be_normalized(field):
    config = ExperimentConfig(ApexDPGConfig(**{field: (8, 1)}))
    config.validate()
    config.agent.layer_norm = True
    with pytest.raises(ValueError, match=rf"agent\.{field} is \(8, 1\); it has to be at least 2"):
        config.validate()


def set_field(config: Any, path: str, value: Any) -> None:
    *groups, name = path.split(".")
    setattr(functools.reduce(getattr, groups, config), name, value)


@pytest.mark.parametrize("agent", AGENTS)
def test_defaults_are_valid(agent):
    make_config(agent).validate()


@pytest.mark.parametrize(("agent", "field", "wrong", "right"), RULES + BOUNDS)
def test_values_that_cannot_work_are_errors(agent, field, wrong, right):
    config = make_config(agent)
    for value in right:
        set_field(config, field, value)
        config.validate()
    for value in wrong:
        set_field(config, field, value)
        with pytest.raises(ValueError) as error:
            config.validate()
        assert str(error.value).startswith(f"{field} is {value!r}; it has to ")


# Returns of an environment.
UNBOUNDED = {"run.target_return", "agent.min_return", "agent.max_return"}


def find_unbounded(config: Any, prefix: str) -> Iterator[str]:
    for name, declared in describe_types(type(config)).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            yield from find_unbounded(value, f"{prefix}{name}.")
        elif re.search(r"\b(int|float)(?! [<>])", declared):
            yield prefix + name


@pytest.mark.parametrize("agent", AGENTS)
def test_every_number_has_bounds(agent):
    assert set(find_unbounded(make_config(agent), "")) <= UNBOUNDED
    assert list(find_unbounded(EvaluationWithoutBounds(), "")) == ["num_episodes"]


@pytest.mark.parametrize("agent", AGENTS)
def test_types_of_all_fields_are_checked(agent):
    for field in field_paths(make_config(agent)):
        config = make_config(agent)
        value = b"" if field.endswith(("kwargs", "part_torsos")) else {}
        set_field(config, field, value)
        with pytest.raises(ValueError) as error:
            config.validate()
        assert str(error.value).startswith(f"{field} is {value!r}; it has to ")


@pytest.mark.parametrize("value", [None, "pong", RunConfig], ids=str)
def test_an_agent_is_a_config(value):
    with pytest.raises(ValueError, match=r"^agent is .*; it has to be an agent's config"):
        ExperimentConfig(value).validate()


@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        (NodeResources(), {"CPU": 1.0}),
        (NodeResources(num_cpus=0.0), {}),
        (NodeResources(num_cpus=8.0, num_gpus=1.0), {"CPU": 8.0, "GPU": 1.0}),
        (
            NodeResources(custom="memory_host=1, fast=0.25"),
            {"CPU": 1.0, "memory_host": 1, "fast": 0.25},
        ),
        (NodeResources(custom="spare=0,"), {"CPU": 1.0}),
    ],
)
def test_amounts_of_resources(resources, amounts):
    assert resources.amounts() == amounts


def test_groups_have_resources_of_their_own():
    cluster = ClusterConfig(learner=NodeResources(num_gpus=1.0))
    assert cluster.resources("learner").amounts() == {"CPU": 1.0, "GPU": 1.0}
    assert cluster.resources("actor").amounts() == {"CPU": 1.0}
    assert cluster.resources("a role of another builder").amounts() == {"CPU": 1.0}


def test_the_environments_of_an_actor_span_all_of_them():
    run = RunConfig(num_actors=4, num_envs_per_actor=3, num_replays=2)
    indices = [list(run.env_indices(actor)) for actor in range(4)]
    assert indices == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert list(RunConfig(num_envs_per_actor=3).env_indices(0)) == [0, 1, 2]
