"""Tests of the messages for values that cannot work."""

import dataclasses
import functools
import re
import types
import typing
from typing import Any

import pytest

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.validation import (
    field_paths,
    require,
    require_between,
    require_positive,
    require_types,
)

NAN, INF = float("nan"), float("inf")

# Every field of the agent's and the run's config: values of its type that cannot work, and what is
# allowed.
INVALID = {
    "agent.network": (["resnet", ""], r"one of \('atari', 'mlp'\)"),
    "agent.mlp_hidden_sizes": (
        [(64, 0), (-1,), (10_001,), (1,) * 17],
        "up to 16 whole numbers from 1 to 10000",
    ),
    "agent.stream_hidden_size": ([0, -1, 10_001], "between 1 and 10000"),
    "agent.frame_stack": ([-1], "at least 0"),
    "agent.n_step": ([0, -3, 10_001], "between 1 and 10000"),
    "agent.discount": ([-0.1, 1.01, 2], "between 0 and 1"),
    "agent.batch_size": ([0, -1, 100_001], "between 1 and 100000"),
    "agent.learning_rate": ([0.0, -1e-4], "greater than 0"),
    "agent.rmsprop_decay": ([-0.1, 1.1], "between 0 and 1"),
    "agent.rmsprop_epsilon": ([0.0, -1e-7], "greater than 0"),
    "agent.max_gradient_norm": ([0.0, -40.0], "greater than 0"),
    "agent.target_update_period": ([0, -1], "greater than 0"),
    "agent.variable_update_period": ([0, -1], "greater than 0"),
    "agent.publish_period": ([0, -1], "greater than 0"),
    "agent.num_sgd_steps_per_step": ([0, -1, 1001], "between 1 and 1000"),
    "agent.exploration.epsilon": ([-0.1, 1.1], "between 0 and 1"),
    "agent.exploration.alpha": ([-1.0], "at least 0"),
    "agent.exploration.num_distinct_epsilons": ([0, -6], "greater than 0"),
    "agent.exploration.evaluation_epsilon": ([-0.1, 1.1], "between 0 and 1"),
    "agent.replay.max_size": ([0, -1, 2**31], "between 1 and 2147483647"),
    "agent.replay.min_size": (
        [0, -1, 2**31, 2_000_001],
        r"between 1 and 2147483647|at most max_size \(\d+\)",
    ),
    "agent.replay.priority_exponent": ([-0.1, 10.1], "between 0 and 10"),
    "agent.replay.eviction_policy": (["lifo", ""], r"one of \('fifo', 'prioritized'\)"),
    "agent.replay.eviction_exponent": ([-10.1, 10.1], "between -10 and 10"),
    "agent.replay.importance_sampling_exponent": ([-0.1, 1.1], "between 0 and 1"),
    "agent.replay.samples_per_insert": ([0.0, -8.0], "greater than 0"),
    "agent.replay.samples_per_insert_tolerance_rate": ([0.0, -0.5], "greater than 0"),
    "agent.replay.replicas": ([0, -1, 101], "between 1 and 100"),
    "agent.replay.insert_batch": ([0, -1, 1_000_001], "between 1 and 1000000"),
    "agent.replay.max_in_flight": (
        [0, 19, 1_000_001],
        r"between 1 and 1000000|at least insert_batch \(20\)",
    ),
    "agent.replay.prefetch_batches": ([0, -1, 1001], "between 1 and 1000"),
    "run.seed": ([-1], "at least 0"),
    "run.num_actors": ([0, -1, 10_001], "between 1 and 10000"),
    "run.num_envs_per_actor": ([0, -1, 1001], "between 1 and 1000"),
    "run.cpu_split": ([-0.1, 1.1], "between 0 and 1"),
    "run.max_learner_steps": ([0, -1], "greater than 0"),
    "run.max_actor_steps": ([0, -1], "greater than 0"),
    "run.checkpoint_period_seconds": ([0.0, -1.0], "greater than 0"),
    "run.num_checkpoints": ([0, -1], "greater than 0"),
    "run.replay_checkpoint_period_seconds": ([0.0, -1.0], "greater than 0"),
    "run.max_restarts": ([-1], "at least 0"),
    "run.restart_window_seconds": ([0.0, -1.0], "greater than 0"),
    **{
        f"run.cluster.{group}.{name}": (values, allowed)
        for group in ("replay", "learner", "evaluator", "actor")
        for name, (values, allowed) in {
            "num_cpus": ([-0.1], "at least 0"),
            "num_gpus": ([-1.0], "at least 0"),
            "custom": (["fast", "fast=", "=1", "fast=-1", "a=1;b=2"], "like 'NAME=1,OTHER=0.5'"),
        }.items()
    },
    "run.cluster.wait_seconds": ([0.0, -1.0], "greater than 0"),
    "run.evaluation.num_episodes": ([0, -1, 10_001], "between 1 and 10000"),
    "run.evaluation.min_period_seconds": ([-1.0, 1e10], "between 0 and 1000000000"),
    "run.evaluation.video_period_seconds": ([0.0, -1.0], "greater than 0"),
}
ANY_VALUE_WORKS = {"run.target_return", "agent.bfloat16"}

# The fields that only the other agent has.
INVALID_DPG = {
    "agent.policy_hidden_sizes": (
        [(64, 0), (64,), (64, 64, 64), (64, 10_001)],
        "two whole numbers from 1 to 10000",
    ),
    "agent.critic_hidden_sizes": ([(64, -1), ()], "two whole numbers from 1 to 10000"),
    "agent.max_action_gradient": ([0.0, -1.0], "greater than 0"),
    "agent.noise_scale": ([-0.1], "at least 0"),
}

# What no field of a type can hold, and what is allowed.
WRONG_TYPES: dict[Any, tuple[list[Any], str]] = {
    int: (
        [1.0, NAN, True, False, "1", "", (1,), b"1", 2**63, -(2**70), 2**20_000],
        "a whole number of at most 64 bits",
    ),
    float: (
        # Infinite or 0 as float32; whole numbers of more than 64 bits stop TensorFlow.
        [NAN, INF, -INF, 1e39, -1e300, 1e-300, True, False, "1", "", (1.0,), 1j, 2**63, 2**20_000],
        "a finite float32 number",
    ),
    bool: ([0, 1, 0.0, "true", "", (True,)], "True or False"),
    str: ([0, True, 1.5, ("a",), ["fifo"], b"fifo", {}], "a string"),
    tuple[int, ...]: (
        ["", "64", b"64", {}, 64, (1.0,), ("64",), (True,), (None,), (NAN,), (2**63,), ((1,),)],
        "a tuple of whole numbers",
    ),
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
    group, name = find_field(config, path)
    setattr(group, name, value)


def find_field(config: Any, path: str) -> tuple[Any, str]:
    *groups, name = path.split(".")
    return functools.reduce(getattr, groups, config), name


def declared_types(config: Any, path: str) -> tuple[Any, ...]:
    group, name = find_field(config, path)
    declared = typing.get_type_hints(type(group))[name]
    return typing.get_args(declared) if isinstance(declared, types.UnionType) else (declared,)


@pytest.mark.parametrize("agent", [ApexDQNConfig, ApexDPGConfig])
def test_defaults_are_valid(agent):
    make_config(agent).validate()


def test_every_field_is_in_the_table():
    config = make_config()
    paths = field_paths(config.agent, "agent.") + field_paths(config.run, "run.")
    assert set(paths) == set(INVALID) | ANY_VALUE_WORKS


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


@pytest.mark.parametrize("agent", [ApexDQNConfig, ApexDPGConfig])
def test_a_field_holds_what_it_is_declared_to_hold(agent):
    for field in field_paths(make_config(agent)):
        kind, *none = declared_types(make_config(agent), field)
        wrong, allowed = WRONG_TYPES[kind]
        for value in [*wrong, *([] if none else [None])]:
            config = make_config(agent)
            set_field(config, field, value)
            with pytest.raises(ValueError) as error:
                config.validate()
            assert str(error.value).startswith(f"{field} is "), field
            message = f"; it has to be {allowed}{' or None' if none else ''}."
            assert str(error.value).endswith(message), field


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("agent", None, "agent is None; it has to be an agent's config."),
        ("agent", ApexDQNConfig, "it has to be an agent's config."),
        ("agent.replay", None, "agent.replay is None; it has to be of type ReplayConfig."),
        ("agent.replay", {}, "agent.replay is {}; it has to be of type ReplayConfig."),
        ("environment", "pong", "environment is 'pong'; it has to be of type EnvironmentConfig."),
        ("environment.atari", 4, "environment.atari is 4; it has to be of type AtariConfig."),
        ("run", RunConfig, "it has to be of type RunConfig."),
        ("run.evaluation", None, "run.evaluation is None; it has to be of type EvaluationConfig."),
    ],
)
def test_a_group_of_fields_is_of_its_type(field, value, message):
    config = make_config()
    set_field(config, field, value)
    with pytest.raises(ValueError, match=f"{re.escape(message)}$"):
        config.validate()


def test_a_number_too_large_to_be_printed_is_named():
    config = make_config()
    config.run.seed = 2**20_000
    with pytest.raises(
        ValueError, match=r"^run\.seed is <int that is too large to be printed>; it "
    ):
        config.validate()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent.discount", 0.0),
        ("agent.discount", 1.0),
        ("agent.frame_stack", 0),
        ("agent.learning_rate", 1),
        ("agent.mlp_hidden_sizes", ()),
        ("agent.mlp_hidden_sizes", [64, 64]),
        ("agent.exploration.epsilon", 0.0),
        ("agent.exploration.epsilon", 1),
        ("agent.exploration.num_distinct_epsilons", 1),
        ("agent.replay.min_size", 2_000_000),
        ("agent.replay.priority_exponent", 0.0),
        ("agent.replay.importance_sampling_exponent", 0.0),
        ("agent.replay.samples_per_insert", 0.5),
        ("agent.replay.max_in_flight", 20),
        ("agent.replay.eviction_policy", "prioritized"),
        ("agent.replay.eviction_exponent", 0.0),
        ("run.max_learner_steps", 1),
        ("run.seed", 2**63 - 1),
        ("run.target_return", -21.0),
        ("run.target_return", 0.0),
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
    with pytest.raises(ValueError, match=r"agent\.n_step is 0; it has to be between 1 and 10000\."):
        ApexDQNBuilder(ApexDQNConfig(n_step=0))


@dataclasses.dataclass
class Sizes:
    small: int = 1
    large: float | None = None


@dataclasses.dataclass
class Box:
    colour: str = "red"
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    content: Any = None


def test_require():
    require(True, "a.b", 3, "less than 3")
    with pytest.raises(ValueError, match=r"^a\.b is 3; it has to be less than 3\.$"):
        require(False, "a.b", 3, "less than 3")


def test_require_types():
    require_types(Box(), "x.")
    require_types(Box(content=NAN), "x.")
    require_types(Sizes(large=2), "x.")
    with pytest.raises(ValueError, match=r"^x\.colour is None; it has to be a string\.$"):
        require_types(Box(colour=None), "x.")
    with pytest.raises(
        ValueError, match=r"^x\.large is inf; it has to be a finite float32 number or None\.$"
    ):
        require_types(Sizes(large=INF), "x.")


def test_require_positive():
    require_positive(Sizes(1, None), "x.", "small", "large")
    with pytest.raises(ValueError, match=r"^x\.large is 0\.0; it has to be greater than 0\.$"):
        require_positive(Sizes(1, 0.0), "x.", "small", "large")


def test_require_between():
    require_between(Sizes(0, 1), "x.", 0, 1, "small", "large")
    with pytest.raises(ValueError, match=r"^x\.large is 1\.5; it has to be between 0 and 1\.$"):
        require_between(Sizes(0, 1.5), "x.", 0, 1, "small", "large")


def test_field_paths():
    assert field_paths(Box(), "box.") == [
        "box.colour",
        "box.sizes.small",
        "box.sizes.large",
        "box.content",
    ]
