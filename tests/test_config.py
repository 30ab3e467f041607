"""Tests of the settings of a run: which values of each field are refused and which work."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from apex_agents.actor_critic.config import A2CConfig, A3CConfig
from apex_agents.config import ClusterConfig, ExperimentConfig, NodeResources, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.validation import field_paths

# Values of the declared type by field: some that cannot work, and some that just do.
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "agent.torso": (["resnet", "", "nets:", ":f", "nets:f:g", "a-b:f"], ["conv", "my.nets:f"]),
    "agent.conv_channels": ([(0,), (), (1,) * 17], [(32,)]),
    "agent.conv_kernel_sizes": ([(0,), (), (3, 3)], [(5,)]),
    "agent.conv_strides": ([(0,), (), (1, 1)], [(2,)]),
    "agent.mlp_hidden_sizes": ([(64, 0), (-1,), (10_001,), (1,) * 17], [(), [64, 64]]),
    "agent.stream_hidden_size": ([0, -1, 10_001], []),
    "agent.frame_stack": ([-1], [0]),
    "agent.n_step": ([0, -3, 10_001], [10_000]),
    "agent.discount": ([-0.1, 1.01, 2], [0.0, 1.0]),
    "agent.batch_size": ([0, -1, 100_001], [100_000]),
    "agent.learning_rate": ([0.0, -1e-4], [1]),
    "agent.rmsprop_decay": ([-0.1, 0.0, 1.1], [0.1]),
    "agent.rmsprop_epsilon": ([0.0, -1e-7], []),
    "agent.max_gradient_norm": ([0.0, -40.0], []),
    "agent.target_update_period": ([0, -1], []),
    "agent.variable_update_period": ([0, -1], []),
    "agent.publish_period": ([0, -1], []),
    "agent.num_sgd_steps_per_step": ([0, -1, 1001], []),
    "agent.exploration.epsilon": ([-0.1, 1.1], [0.0, 1]),
    "agent.exploration.alpha": ([-1.0], []),
    "agent.exploration.num_distinct_epsilons": ([0, -6], [1]),
    "agent.exploration.annealing_steps": ([0, -1], [1]),
    "agent.exploration.evaluation_epsilon": ([-0.1, 1.1], []),
    "agent.head": (["quantiles", ""], ["quantile"]),
    "agent.num_quantiles": ([0, 1001], [1]),
    "agent.optimizer": (["sgd"], ["adam"]),
    "agent.learning_rate_steps": ([0, -1], [1]),
    "agent.adam_epsilon": ([0.0, -1e-8], [1e-8]),
    "agent.replay.max_size": ([0, -1, 2**31], []),
    "agent.replay.min_size": ([0, -1, 2**31, 2_000_001], [1_000_000]),
    "agent.replay.priority_exponent": ([-0.1, 10.1], [0.0]),
    "agent.replay.eviction_policy": (["lifo", ""], ["prioritized"]),
    "agent.replay.initial_priority": (["min", ""], ["max"]),
    "agent.replay.eviction_exponent": ([-10.1, 10.1], [0.0]),
    "agent.replay.importance_sampling_exponent": ([-0.1, 1.1], [0.0]),
    "agent.replay.samples_per_insert": ([0.0, -8.0], [0.5]),
    "agent.replay.samples_per_insert_tolerance_rate": ([0.0, -0.5], []),
    "agent.replay.replicas": ([0, -1, 101], []),
    "agent.replay.insert_batch": ([0, -1, 1_000_001], []),
    "agent.replay.max_in_flight": ([0, 19, 1_000_001], [20]),
    "agent.replay.prefetch_batches": ([0, -1, 1001], []),
    "environment.kwargs": (
        [{1: 2}, {"make": len}, {"x": float("nan")}, {"x": {1, 2}}, {"__tuple__": [1]}],
        [{"size": [5, 5], "map": {"a": None}, "is_slippery": False}, {"a": ({"b": (1,)}, [])}],
    ),
    "environment.evaluation_kwargs": ([{1: 2}], [{"levels": [3, 4]}]),
    "agent.builder": (["", "builder", "a b:c"], ["my_update:MyBuilder"]),
    "environment.max_episode_steps": ([0, -1], [1]),
    "environment.action_repeat": ([0, -1, 1_001], []),
    "environment.step_timeout_seconds": ([0.0, -1.0], [0.1, 3600]),
    "environment.atari.sticky_action_probability": ([1.0, -0.1], [0.99]),
    "environment.atari.max_noops": ([-1, 10_001], [0, 10_000]),
    "environment.atari.action_repeat": ([0, 1001], [1, 1000]),
    "environment.atari.frame_stack": ([0, 101], [1, 100]),
    "environment.atari.frame_size": ([0, 1001], []),
    "environment.atari.max_frames": ([0, 2**31], [2**31 - 1]),
    "environment.atari.evaluation_max_frames": ([0, 2**31], []),
    "environment.atari.num_threads": ([0, 1001], []),
    "run.seed": ([-1], [2**63 - 1]),
    "run.num_actors": ([0, -1, 10_001], [1, 10_000]),
    "run.num_replays": ([0, -1, 2, 101], [1]),
    "run.num_envs_per_actor": ([0, -1, 1001], [1000]),
    "run.cpu_split": ([-0.1, 1.1], [1]),
    "run.max_learner_steps": ([0, -1], [1]),
    "run.max_actor_steps": ([0, -1], []),
    "run.max_seconds": ([0, -1.0], [0.5, 3600]),
    "run.checkpoint_period_seconds": ([0.0, -1.0], []),
    "run.num_checkpoints": ([0, -1], []),
    "run.replay_checkpoint_period_seconds": ([0.0, -1.0], []),
    "run.max_restarts": ([-1], [0]),
    "run.restart_window_seconds": ([0.0, -1.0], []),
    **{
        f"run.cluster.{group}.{name}": values
        for group in ("replay", "learner", "evaluator", "actor")
        for name, values in {
            "num_cpus": ([-0.1], [0.0]),
            "num_gpus": ([-1.0], [0.5]),
            "custom": (["fast", "fast=", "=1", "fast=-1", "a=1;b=2"], ["a=1, b=0.25,"]),
        }.items()
    },
    "run.cluster.wait_seconds": ([0.0, -1.0], []),
    "run.evaluation.num_episodes": ([0, -1, 10_001], [10_000]),
    "run.evaluation.min_period_seconds": ([-1.0, 1e10], [0.0]),
    "run.evaluation.min_period_learner_steps": ([-1], [0]),
    "run.evaluation.max_wait_seconds": ([0.0, -1.0], [1e-3]),
    "run.evaluation.video_period_seconds": ([0.0, -1.0], []),
}
ANY_VALUE_WORKS = {
    *("run.target_return", "agent.bfloat16", "agent.normalize_observations"),
    *("environment.atari.full_action_set", "environment.atari.life_loss_ends_episode"),
    "environment.atari.clip_rewards",
}
NAMES = {"environment.suite", "environment.task"}  # tests/environments/test_factory.py has them.

# The fields that only the other agent has.
DPG_VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "agent.policy_torso": (["atari", "conv", ""], ["none", "my_nets:f"]),
    "agent.critic_torso": (["atari", "conv", ""], ["none", "my_nets:f"]),
    "agent.policy_hidden_sizes": ([(64, 0), (64,), (64, 64, 64), (64, 10_001)], []),
    "agent.critic_hidden_sizes": ([(64, -1), ()], []),
    "agent.max_action_gradient": ([0.0, -1.0], []),
    "agent.critic": (["dueling", ""], ["quantile", "categorical"]),
    "agent.num_critics": ([0, 101], [2]),
    "agent.num_atoms": ([1, 1001], [2]),
    "agent.policy_learning_rate": ([0.0, -1e-4], [1]),
    "agent.target_update_rate": ([0.0, 1.1], [1e-6]),
    "agent.min_return": ([], [149.0]),
    "agent.max_return": ([-150.0, -151.0], []),
    "agent.exploration.noise_scale": ([-0.1], []),
    "agent.exploration.min_noise_scale": ([-0.1, 0.31], [0.0, 0.3]),
}

# And those of A2C and A3C.
ACTOR_CRITIC_VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "agent.hidden_size": ([-1, 10_001], [0]),
    "agent.value_coefficient": ([-0.1], [0.0]),
    "agent.entropy_coefficient": ([-0.1], [0.0]),
    "agent.max_wait_seconds": ([0.0, -1.0], []),
    "agent.queue_size": ([0, 10_001], [1]),
}
TABLES = {
    ApexDQNConfig: VALUES,
    ApexDPGConfig: {**VALUES, **DPG_VALUES},
    A2CConfig: {**VALUES, **ACTOR_CRITIC_VALUES},
    A3CConfig: {**VALUES, **ACTOR_CRITIC_VALUES},
}


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


CASES = [
    (agent, field, value, is_valid)
    for agent, table in TABLES.items()
    for field, groups in table.items()
    if field in field_paths(make_config(agent))
    # The other sections have the same classes whatever the agent.
    and (field.startswith("agent.") or agent is next(iter(TABLES)))
    for is_valid, values in enumerate(groups)
    for value in values
]


@pytest.mark.parametrize("agent", TABLES)
def test_defaults_are_valid(agent):
    make_config(agent).validate()


def test_every_field_is_in_the_tables():
    dqn, dpg, a2c, a3c = (set(field_paths(make_config(agent))) for agent in TABLES)
    assert dqn == set(VALUES) | ANY_VALUE_WORKS | NAMES
    # True and False.
    assert dpg - dqn == set(DPG_VALUES) | {"agent.layer_norm"}
    assert a2c - dqn == set(ACTOR_CRITIC_VALUES) | {"agent.greedy_evaluation"}
    assert a2c == a3c


@pytest.mark.parametrize(("agent", "field", "value", "is_valid"), CASES)
def test_values_that_cannot_work_are_errors(agent, field, value, is_valid):
    config = make_config(agent)
    set_field(config, field, value)
    if is_valid:
        config.validate()
        return
    with pytest.raises(ValueError) as error:
        config.validate()
    assert str(error.value).startswith(f"{field} is {value!r}; it has to be ")


@pytest.mark.parametrize("agent", TABLES)
def test_types_of_all_fields_are_checked(agent):
    for field in field_paths(make_config(agent)):
        config = make_config(agent)
        value = b"" if field.endswith("kwargs") else {}
        set_field(config, field, value)
        with pytest.raises(ValueError) as error:
            config.validate()
        assert str(error.value).startswith(f"{field} is {value!r}; it has to be ")


@pytest.mark.parametrize(
    "field", ["agent", "agent.replay", "environment", "environment.atari", "run", "run.evaluation"]
)
@pytest.mark.parametrize("value", [None, "pong", RunConfig], ids=str)
def test_a_group_of_fields_is_of_its_type(field, value):
    config = make_config()
    set_field(config, field, value)
    with pytest.raises(ValueError) as error:
        config.validate()
    assert str(error.value).startswith(f"{field} is {value!r}; it has to be ")


def test_builder_checks_its_config():
    with pytest.raises(ValueError, match=r"^agent\.n_step is 0; "):
        ApexDQNBuilder(ApexDQNConfig(n_step=0))


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
