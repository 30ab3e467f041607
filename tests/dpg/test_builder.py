"""Which environments and configs the builder accepts."""

import re
from typing import NamedTuple

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs
from gymnasium import spaces

from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import DPGNetworks, make_networks
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec, restart_batch
from apex_agents.environments.actions import BoxActions
from apex_agents.networks import to_vector

VECTOR = specs.Array((4,), np.float32)


def make_spec(actions: specs.Array) -> EnvironmentSpec:
    return EnvironmentSpec(VECTOR, actions, specs.Array((), np.float32), None)


@pytest.mark.parametrize("size", [1, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_that_fit(size, dtype):
    actions = specs.BoundedArray((size,), dtype, -1.0, 1.0)
    ApexDPGBuilder(ApexDPGConfig()).check_environment(make_spec(actions))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (
            specs.DiscreteArray(3),
            "needs actions that are float vectors; the environment has 3 discrete actions. Use "
            "Ape-X DQN: the command apex-dqn",
        ),
        (specs.BoundedArray((2,), np.int32, -1, 1), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.int64, -1, 1), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.uint8, 0, 1), "actions that are float vectors"),
        (specs.BoundedArray((2, 2), np.float32, -1.0, 1.0), "actions that are float vectors"),
        (specs.BoundedArray((2,), np.float32, -2.0, 2.0), "actions in [-1, 1]"),
        (specs.BoundedArray((2,), np.float32, [-1.0, 0.0], 1.0), "actions in [-1, 1]"),
        (specs.BoundedArray((2,), np.float32, [-1.0, -np.inf], 1.0), "in the elements [1]."),
        (specs.BoundedArray((2,), np.float32, -1.0, [np.inf, 1.0]), "in the elements [0]."),
        (specs.BoundedArray((2,), np.float32, [-1.0, 0.0], 1.0), "[-1.0, 0.0] and [1.0, 1.0]."),
        (specs.Array((2,), np.float32), "infinite bounds, or a range above 2e+09, in the elements"),
        (
            BoxActions(spaces.Box(np.float32([-1, -3e38]), np.float32([2, 3e38]))),
            "infinite bounds, or a range above 2e+09, in the elements [1].",
        ),
    ],
)
def test_actions_that_do_not_fit(actions, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ApexDPGBuilder(ApexDPGConfig()).check_environment(make_spec(actions))


IMAGES = specs.BoundedArray((9, 9, 3), np.uint8, 0, 255)


@pytest.mark.parametrize("torso", ["mlp", "none"])
@pytest.mark.parametrize(
    ("shape", "num_filters"),
    [((9, 9, 3), 16), ((3, 9, 9), 16), ((40, 50), 64), ((2, 40, 40, 3), 64), ((2, 2), None)],
)
def test_images_pass_convolutions(torso, shape, num_filters):
    images = specs.BoundedArray(shape, np.uint8, 0, 255)
    builder = ApexDPGBuilder(ApexDPGConfig(policy_torso=torso, critic_torso=torso))
    spec = SPEC._replace(observations=images)
    builder.check_environment(spec)
    policy, critic = builder.make_networks(spec)
    observations = tf.cast(tf.reshape(tf.range(5 * np.prod(shape)) % 251, [5, *shape]), tf.uint8)
    assert critic(observations, policy(observations)).shape == (5,)
    for network in (policy, critic):
        filters = [v.shape[-1] for v in network.trainable_variables if v.shape.rank == 4]
        assert filters[-1:] == ([num_filters] if num_filters else [])


class WithNetworks(ApexDPGBuilder):
    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> DPGNetworks:
        vectors = spec._replace(observations=VECTOR)
        return make_networks(self.config, vectors, lambda spec, config: snt.Flatten())


def test_images_are_for_networks_of_the_user():
    WithNetworks(ApexDPGConfig()).check_environment(SPEC._replace(observations=IMAGES))


def test_images_are_for_torsos_of_the_user():
    spec = SPEC._replace(observations=IMAGES)
    builder = ApexDPGBuilder(
        ApexDPGConfig(),
        lambda spec, config: snt.Sequential([lambda image: to_vector(image, spec), snt.Linear(3)]),
    )
    builder.check_environment(spec)
    policy, _ = builder.make_networks(spec)
    assert policy(tf.zeros([5, 9, 9, 3], tf.uint8)).shape == (5, 2)


def test_images_are_not_normalized():
    builder = ApexDPGBuilder(
        ApexDPGConfig(normalize_observations=True), lambda spec, config: snt.Flatten()
    )
    with pytest.raises(ValueError, match=r"agent\.normalize_observations"):
        builder.check_environment(SPEC._replace(observations=IMAGES))


def test_a_torso_that_is_made_once_is_refused_before_anything_starts():
    torso = snt.Linear(3, name="only_one")
    builder = ApexDPGBuilder(ApexDPGConfig(), lambda spec, config: torso)
    with pytest.raises(ValueError, match="only_one/w"):
        builder.check_environment(SPEC)


SPEC = make_spec(specs.BoundedArray((2,), np.float32, -1.0, 1.0))


def test_actors_differ_in_noise_and_not_in_what_the_learner_gives_them():
    builder = ApexDPGBuilder(ApexDPGConfig())
    timestep = restart_batch(np.ones([1, 4], np.float32))
    outputs = [builder.make_policy(SPEC, [0], 1, seed)(timestep) for seed in (1, 1, 2)]
    first, again, other = (output.action.tolist() for output in outputs)
    assert first == again != other
    # Initial networks follow from the seed, too.
    assert outputs[0].value == outputs[1].value != outputs[2].value


def test_config_of_the_other_agent_is_refused():
    for builder, config in ((ApexDPGBuilder, ApexDQNConfig), (ApexDQNBuilder, ApexDPGConfig)):
        with pytest.raises(ValueError, match=f"'{config.__name__}'"):
            builder(config())


class ThreeNetworks(NamedTuple):
    policy: tf.Module
    critic: tf.Module
    predictor: tf.Module


class ThreeNetworksBuilder(ApexDPGBuilder):
    """Has a network besides policy and critic."""

    def make_networks(self, spec, seed=0, **options):
        predictor = snt.Linear(1, name="predictor")
        predictor(tf.zeros([1, 4]))
        return ThreeNetworks(*super().make_networks(spec, seed, **options), predictor)


def test_further_networks_do_not_act():
    spec = make_spec(specs.BoundedArray((2,), np.float32, -1.0, 1.0))
    greedy = ThreeNetworksBuilder(ApexDPGConfig()).make_greedy_policy(spec)
    assert list(greedy.networks) == ["policy", "critic", "predictor"]
    observations = tf.ones([3, 4])
    action, _ = greedy.evaluate(observations)
    assert action.shape == [3, 2]
    assert greedy.value(observations, action).shape == [3]
