"""Which environments the builder accepts."""

import dataclasses

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import EnvironmentSpec, restart_batch
from apex_agents.networks import to_vector

FRAMES = specs.BoundedArray((4, 84, 84), np.uint8, 0, 255)
FLOAT_FRAMES = specs.BoundedArray((4, 84, 84), np.float32, 0.0, 1.0)
VECTOR = specs.Array((4,), np.float32)
DISCRETE = specs.DiscreteArray(3)
CONTINUOUS = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


def make_spec(observations, actions) -> EnvironmentSpec:
    return EnvironmentSpec(observations, actions, specs.Array((), np.float32), None)


IMAGE = specs.BoundedArray((10, 7, 4), np.uint8, 0, 1)
MLP = ApexDQNConfig(torso="mlp", frame_stack=0)
CONV = ApexDQNConfig(torso="conv", frame_stack=0)


@pytest.mark.parametrize(
    ("config", "observations"),
    [
        (ApexDQNConfig(), FRAMES),
        (MLP, VECTOR),
        (MLP, IMAGE),
        (dataclasses.replace(MLP, normalize_observations=True), VECTOR),
        (dataclasses.replace(MLP, frame_stack=4), specs.Array((4, 3), np.float32)),
        (CONV, IMAGE),
        (CONV, specs.BoundedArray((10, 7), np.uint8, 0, 1)),
        (CONV, FLOAT_FRAMES),
        (dataclasses.replace(CONV, frame_stack=4), FRAMES),
        (dataclasses.replace(CONV, frame_stack=2), specs.Array((2, 10, 7, 3), np.uint8)),
    ],
)
def test_environments_that_fit(config, observations):
    ApexDQNBuilder(config).check_environment(make_spec(observations, DISCRETE))


@pytest.mark.parametrize(
    ("actions", "described", "is_for_dpg"),
    [
        (CONTINUOUS, "float32 arrays of shape [2], between -1 and 1.", True),
        (specs.Array((1, 2), np.float64), "shape [1, 2], between -inf and inf.", False),
        (specs.BoundedArray((2,), np.int32, 0, [1, 3]), "shape [2], between 0 and 3.", False),
    ],
)
def test_actions_that_are_not_discrete_are_refused(actions, described, is_for_dpg):
    with pytest.raises(ValueError, match="needs discrete actions") as error:
        ApexDQNBuilder(ApexDQNConfig()).check_environment(make_spec(FRAMES, actions))
    assert described in str(error.value)
    assert ("apex-dpg" in str(error.value)) is is_for_dpg


# What is wrong, and what to set.
NO_STACK = "set agent.torso='auto', agent.frame_stack=0."
STACK_OF_4 = "set agent.torso='auto', agent.frame_stack=4."


@pytest.mark.parametrize(
    ("config", "observations", "given", "advice"),
    [
        (ApexDQNConfig(), VECTOR, ("'atari'", 4, "float32 (4,)"), NO_STACK),
        (ApexDQNConfig(), IMAGE, ("'atari'", 4, "uint8 (10, 7, 4)"), NO_STACK),
        (
            *(ApexDQNConfig(), FLOAT_FRAMES, ("'atari'", 4, "float32 (4, 84, 84)")),
            STACK_OF_4,
        ),
        (ApexDQNConfig(frame_stack=3), FRAMES, ("'atari'", 3, "uint8 (4, 84, 84)"), STACK_OF_4),
        (ApexDQNConfig(frame_stack=0), FRAMES, ("'atari'", 0, "uint8 (4, 84, 84)"), STACK_OF_4),
        (
            *(ApexDQNConfig(torso="mlp"), VECTOR, ("'mlp'", 4, "float32 (4,)")),
            NO_STACK,
        ),
        (
            *(CONV, specs.BoundedArray((4, 64, 64, 3), np.uint8, 0, 255)),
            ("'conv'", 0, "uint8 (4, 64, 64, 3)"),
            STACK_OF_4,
        ),
        (
            # The colours of one image.
            *(ApexDQNConfig(), specs.BoundedArray((3, 84, 84), np.uint8, 0, 255)),
            ("'atari'", 4, "uint8 (3, 84, 84)"),
            NO_STACK,
        ),
        (CONV, VECTOR, ("'conv'", 0, "float32 (4,)"), NO_STACK),
        (ApexDQNConfig(torso="conv"), IMAGE, ("'conv'", 4, "uint8 (10, 7, 4)"), NO_STACK),
    ],
)
def test_observations_that_do_not_fit(config, observations, given, advice):
    torso, stack, observed = given
    with pytest.raises(ValueError) as error:
        ApexDQNBuilder(config).check_environment(make_spec(observations, DISCRETE))
    assert str(error.value) == (
        f"agent.torso is {torso} and agent.frame_stack is {stack}, but observations are "
        f"{observed}: {advice}"
    )


def test_images_are_not_normalized():
    config = dataclasses.replace(CONV, normalize_observations=True)
    with pytest.raises(ValueError, match=r"agent\.normalize_observations"):
        ApexDQNBuilder(config).check_environment(make_spec(IMAGE, DISCRETE))


def make_torso(spec: EnvironmentSpec, config: ApexDQNConfig) -> snt.Module:
    return snt.Sequential([lambda observations: to_vector(observations, spec), snt.Linear(3)])


@pytest.mark.parametrize("observations", [VECTOR, IMAGE, FLOAT_FRAMES])
def test_a_torso_given_in_python_gets_any_observations(observations):
    builder = ApexDQNBuilder(ApexDQNConfig(frame_stack=0), make_torso)
    builder.check_environment(make_spec(observations, DISCRETE))
    network = builder.make_networks(make_spec(observations, DISCRETE))
    assert network(np.zeros([5, *observations.shape], observations.dtype)).shape == (5, 3)


def test_the_stack_has_to_fit_a_torso_given_in_python():
    builder = ApexDQNBuilder(ApexDQNConfig(), make_torso)
    with pytest.raises(ValueError, match=r"^agent\.frame_stack is 4.*set agent\.frame_stack=0\.$"):
        builder.check_environment(make_spec(VECTOR, DISCRETE))


def test_a_torso_that_is_made_once_is_refused_before_the_learner_makes_a_target_network():
    torso = snt.Linear(3, name="only_one")
    builder = ApexDQNBuilder(MLP, lambda spec, config: torso)
    with pytest.raises(ValueError, match="only_one/w"):
        builder.check_environment(make_spec(VECTOR, DISCRETE))


@pytest.mark.parametrize("cpu_has_bfloat16", [False, True])
def test_tables_take_what_the_learner_publishes_on_every_cpu(monkeypatch, cpu_has_bfloat16):
    monkeypatch.setattr("apex_agents.precision.cpu_has_bfloat16", lambda: cpu_has_bfloat16)
    builder = ApexDQNBuilder(ApexDQNConfig(bfloat16=True))
    spec = make_spec(FRAMES, DISCRETE)
    tables = {table.info.name: table.info for table in builder.make_replay_tables(spec)}
    published = {"network": builder.make_networks(spec).variables}
    signature = tables["parameters"].signature["variables"]
    assert signature.keys() == published.keys()
    for tensor, variable in zip(signature["network"], published["network"], strict=True):
        assert (tensor.dtype, tensor.shape) == (variable.dtype, variable.shape)


def test_actors_of_munchausen_compute_its_soft_values():
    builder = ApexDQNBuilder(dataclasses.replace(MLP, target="munchausen"))
    spec = make_spec(VECTOR, DISCRETE)
    policy = builder.make_policy(spec, [0], 1, 0)
    rows = np.zeros((1, *VECTOR.shape), VECTOR.dtype)
    q_values = builder.make_networks(spec)(tf.constant(rows)).numpy()
    value = policy(restart_batch(rows)).value
    assert float(value[0]) == pytest.approx(0.03 * np.log(np.exp(q_values / 0.03).sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("annealing_steps", "names"), [(None, {"network"}), (100, {"network", "num_updates"})]
)
def test_what_actors_pull_is_published(annealing_steps, names):
    config = dataclasses.replace(MLP, mlp_hidden_sizes=(4,), stream_hidden_size=4)
    config.exploration = ExplorationConfig(annealing_steps=annealing_steps)
    builder, spec = ApexDQNBuilder(config), make_spec(VECTOR, DISCRETE)
    published, pulled = builder.make_update(spec).variables, builder.make_policy(spec, [0], 1, 0)
    for variables in (published, pulled.variables):
        assert variables.keys() == names
