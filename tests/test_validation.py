"""Tests of the messages for values that cannot work."""

import dataclasses
import functools
from typing import Any

import pytest

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.experiment import ExperimentConfig, RunConfig
from apex_agents.validation import field_paths, require, require_fraction, require_positive

NAN = float("nan")

# Every field of the agent's and the run's config: values that cannot work, and what is allowed.
INVALID = {
    "agent.network": (["resnet", ""], r"one of \('atari', 'mlp'\)"),
    "agent.mlp_hidden_sizes": ([(64, 0), (-1,), (0.5,)], "whole numbers greater than 0"),
    "agent.stream_hidden_size": ([0, -1, None], "greater than 0"),
    "agent.frame_stack": ([-1], "at least 0"),
    "agent.n_step": ([0, -3, None], "greater than 0"),
    "agent.discount": ([-0.1, 1.01, NAN, None], "between 0 and 1"),
    "agent.batch_size": ([0, -1, None], "greater than 0"),
    "agent.learning_rate": ([0.0, -1e-4, NAN, "fast"], "greater than 0"),
    "agent.rmsprop_decay": ([-0.1, 1.1, NAN], "between 0 and 1"),
    "agent.rmsprop_epsilon": ([0.0, -1e-7, NAN], "greater than 0"),
    "agent.max_gradient_norm": ([0.0, -40.0, NAN], "greater than 0"),
    "agent.target_update_period": ([0, -1], "greater than 0"),
    "agent.parameter_update_period": ([0, -1], "greater than 0"),
    "agent.publish_period": ([0, -1], "greater than 0"),
    "agent.exploration.epsilon": ([-0.1, 1.1, NAN], "between 0 and 1"),
    "agent.exploration.alpha": ([-1.0, NAN], "at least 0"),
    "agent.exploration.num_distinct_epsilons": ([0, -6], "greater than 0"),
    "agent.exploration.evaluation_epsilon": ([-0.1, 1.1, NAN], "between 0 and 1"),
    "agent.replay.max_size": ([0, -1], "greater than 0"),
    "agent.replay.min_size": ([0, -1, 2_000_001], r"greater than 0|at most max_size \(\d+\)"),
    "agent.replay.priority_exponent": ([-0.1, NAN], "at least 0"),
    "agent.replay.remover": (["lifo", None], r"one of \('fifo', 'prioritized'\)"),
    "agent.replay.eviction_exponent": ([NAN, float("inf")], "a finite number"),
    "agent.replay.importance_exponent": ([-0.1, 1.1, NAN], "between 0 and 1"),
    "agent.replay.samples_per_insert": ([0.0, -8.0, NAN], "greater than 0"),
    "agent.replay.samples_per_insert_tolerance": ([0.0, -0.5, NAN], "greater than 0"),
    "agent.replay.replicas": ([0, -1], "greater than 0"),
    "agent.replay.insert_batch": ([0, -1], "greater than 0"),
    "agent.replay.max_in_flight": ([0, 19], r"at least insert_batch \(20\)"),
    "agent.replay.prefetch_batches": ([0, -1], "greater than 0"),
    "run.seed": ([-1], "at least 0"),
    "run.num_actors": ([0, -1], "greater than 0"),
    "run.lanes_per_actor": ([0, -1], "greater than 0"),
    "run.max_learner_steps": ([0, -1], "greater than 0"),
    "run.max_actor_steps": ([0, -1], "greater than 0"),
    "run.checkpoint_period_seconds": ([0.0, -1.0, NAN], "greater than 0"),
    "run.num_checkpoints": ([0, -1], "greater than 0"),
    "run.replay_checkpoint_period_seconds": ([0.0, -1.0, NAN], "greater than 0"),
    "run.max_restarts": ([-1], "at least 0"),
    "run.restart_window_seconds": ([0.0, -1.0, NAN], "greater than 0"),
    "run.evaluation.num_episodes": ([0, -1], "greater than 0"),
    "run.evaluation.min_period_seconds": ([-1.0, NAN], "at least 0"),
}
ANY_VALUE_WORKS = {"run.target_return"}
GROUPS = {"agent.exploration", "agent.replay", "run.evaluation"}

# The fields that only the other agent has.
INVALID_DPG = {
    "agent.policy_hidden_sizes": (
        [(64, 0), (64,), (64, 64, 64), (0.5, 1)],
        "two whole numbers greater than 0",
    ),
    "agent.critic_hidden_sizes": ([(64, -1), ()], "two whole numbers greater than 0"),
    "agent.max_action_gradient": ([0.0, -1.0, NAN], "greater than 0"),
    "agent.noise_scale": ([-0.1, NAN, float("inf")], "a finite number of at least 0"),
}

CASES = [
    (agent, field, value)
    for agent, table in (
        (ApexDQNConfig, INVALID),
        (ApexDPGConfig, {**INVALID, **INVALID_DPG}),
    )
    for field, (values, _) in table.items()
    if field.removeprefix("agent.") in field_paths(agent()) or field.startswith("run.")
    for value in values
]


def make_config(agent: Any = ApexDQNConfig) -> ExperimentConfig:
    return ExperimentConfig(agent(), EnvironmentConfig(), RunConfig())


def set_field(config: Any, path: str, value: Any) -> None:
    *groups, name = path.split(".")
    setattr(functools.reduce(getattr, groups, config), name, value)


@pytest.mark.parametrize("agent", [ApexDQNConfig, ApexDPGConfig])
def test_defaults_are_valid(agent):
    make_config(agent).validate()


def test_every_field_is_in_the_table():
    config = make_config()
    paths = field_paths(config.agent, "agent.") + field_paths(config.run, "run.")
    assert set(paths) == set(INVALID) | ANY_VALUE_WORKS | GROUPS


def test_fields_of_both_agents_mean_the_same():
    dqn, dpg = set(field_paths(ApexDQNConfig())), set(field_paths(ApexDPGConfig()))
    assert {f"agent.{field}" for field in dpg - dqn} == set(INVALID_DPG)


@pytest.mark.parametrize(("agent", "field", "value"), CASES)
def test_message_names_field_value_and_what_is_allowed(agent, field, value):
    config = make_config(agent)
    set_field(config, field, value)
    with pytest.raises(ValueError) as error:
        config.validate()
    message = str(error.value)
    assert message.startswith(f"{field} is {value!r}; it has to be ")
    _, allowed = {**INVALID, **INVALID_DPG}[field]
    with pytest.raises(ValueError, match=f"it has to be ({allowed})\\.$"):
        config.validate()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent.discount", 0.0),
        ("agent.discount", 1.0),
        ("agent.frame_stack", 0),
        ("agent.mlp_hidden_sizes", ()),
        ("agent.exploration.epsilon", 0.0),
        ("agent.exploration.epsilon", 1),
        ("agent.exploration.num_distinct_epsilons", 1),
        ("agent.replay.min_size", 2_000_000),
        ("agent.replay.priority_exponent", 0.0),
        ("agent.replay.importance_exponent", 0.0),
        ("agent.replay.samples_per_insert", 0.5),
        ("agent.replay.max_in_flight", 20),
        ("agent.replay.remover", "prioritized"),
        ("agent.replay.eviction_exponent", 0.0),
        ("run.max_learner_steps", 1),
        ("run.target_return", -21.0),
        ("run.evaluation.min_period_seconds", 0.0),
    ],
)
def test_values_at_the_edge_are_valid(field, value):
    config = make_config()
    set_field(config, field, value)
    config.validate()


def test_environment_is_checked_with_the_rest():
    config = make_config()
    config.environment.task = "pnog"
    with pytest.raises(ValueError, match=r"'pnog'.*pong"):
        config.validate()


def test_builder_checks_its_config():
    with pytest.raises(ValueError, match=r"agent\.n_step is 0; it has to be greater than 0\."):
        ApexDQNBuilder(ApexDQNConfig(n_step=0))


@dataclasses.dataclass
class Sizes:
    small: Any = 1
    large: Any = None


@dataclasses.dataclass
class Box:
    colour: str = "red"
    sizes: Sizes = dataclasses.field(default_factory=Sizes)


def test_require():
    require(True, "a.b", 3, "less than 3")
    with pytest.raises(ValueError, match=r"^a\.b is 3; it has to be less than 3\.$"):
        require(False, "a.b", 3, "less than 3")


def test_require_positive():
    require_positive(Sizes(0.5, None), "x.", "small")
    require_positive(Sizes(0.5, None), "x.", "small", "large", optional=True)
    with pytest.raises(ValueError, match=r"^x\.large is None; it has to be greater than 0\.$"):
        require_positive(Sizes(0.5, None), "x.", "small", "large")
    with pytest.raises(ValueError, match=r"^x\.small is '1'; it has to be greater than 0\.$"):
        require_positive(Sizes("1"), "x.", "small")


def test_require_fraction():
    require_fraction(Sizes(0, 1), "x.", "small", "large")
    with pytest.raises(ValueError, match=r"^x\.large is 1\.5; it has to be between 0 and 1\.$"):
        require_fraction(Sizes(0, 1.5), "x.", "small", "large")


def test_field_paths():
    assert field_paths(Box(), "box.") == ["box.colour", "box.sizes", "box.sizes.small"] + [
        "box.sizes.large"
    ]
