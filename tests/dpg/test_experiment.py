"""Tests of whole runs in one process: what a point on a line teaches, and what breaks it.

With gamma = 1/2, steps of 1/4 and a truncation that ends nothing, the best policy pushes the point
towards the middle: from x = 1 it passes 3/4, 1/2, 1/4 and 0, so that
q(1, -1) = -(3/4 + 1/2 * 1/2 + 1/4 * 1/4) = -1.0625.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.acting.actor import ApexActor
from apex_agents.config import RunConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import DPGNetworks, make_networks
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.evaluation.episodes import play_episodes
from apex_agents.experiment import Experiment
from apex_agents.local import run_local
from apex_agents.replay.config import ReplayConfig

Q_AT_THE_END_OF_THE_LINE = -1.0625
# The first of its rewards, and the gamma^3 * q that a target without copies lacks for n = 1.
FIRST_REWARD = -0.75

ENVIRONMENT = EnvironmentConfig("toy", "point_mass")
CONFIG = ApexDPGConfig(
    policy_hidden_sizes=(32, 32),
    critic_hidden_sizes=(32, 32),
    n_step=1,
    discount=0.5,
    batch_size=64,
    learning_rate=0.003,
    target_update_period=20,
    variable_update_period=5,
    publish_period=5,
    replay=ReplayConfig(
        *(5000, 200), eviction_policy="prioritized", samples_per_insert=16.0, prefetch_batches=2
    ),
)


def make_point_mass(num_envs: int, seed: int, evaluation: bool):
    return make_vector_environment(ENVIRONMENT, num_envs, seed, evaluation=evaluation)


def learn(config: ApexDPGConfig) -> DPGNetworks:
    """Learn for 800 steps and return the networks."""
    run = RunConfig(num_actors=1, num_envs_per_actor=8, max_learner_steps=800)
    learner = run_local(Experiment(ApexDPGBuilder(config), make_point_mass, run, workdir=""))
    environment = make_point_mass(1, 0, False)
    networks = make_networks(config, environment.spec)
    for name, network in networks._asdict().items():
        (arrays,) = learner.get_variables([name])
        for variable, array in zip(network.variables, arrays, strict=True):
            variable.assign(array)
    return networks


def q_at_the_end_of_the_line(networks: DPGNetworks) -> float:
    return float(networks.critic(tf.constant([[1.0]]), tf.constant([[-1.0]]))[0])


@pytest.fixture(scope="module")
def learned() -> DPGNetworks:
    return learn(CONFIG)


def test_policy_pushes_towards_the_middle(learned):
    positions = tf.constant([[-1.0], [-0.5], [0.5], [1.0]])
    np.testing.assert_allclose(learned.policy(positions)[:, 0], [1, 1, -1, -1], atol=0.1)
    # Within a step of the middle the best push ends there: -x / 0.25.
    near = learned.policy(tf.constant([[-0.125], [0.0], [0.125]]))[:, 0]
    np.testing.assert_allclose(near, [0.5, 0.0, -0.5], atol=0.25)


def test_critic_knows_the_value(learned):
    assert q_at_the_end_of_the_line(learned) == pytest.approx(Q_AT_THE_END_OF_THE_LINE, abs=0.1)


def test_evaluation_is_close_to_the_best_return(learned):
    builder = ApexDPGBuilder(CONFIG)
    environment = make_point_mass(20, 5, True)
    policy = builder.make_evaluation_policy(environment.spec, 20, seed=0)
    for name, network in learned._asdict().items():
        for variable, learned_variable in zip(
            policy.variables[name], network.variables, strict=True
        ):
            variable.assign(learned_variable)
    starts = make_point_mass(20, 5, True).reset().observation[:, 0]
    best = [-sum(max(abs(x) - 0.25 * k, 0.0) for k in range(1, 11)) for x in starts]
    episodes = play_episodes(environment, ApexActor(policy))
    mean_return = np.mean([episode.episode_return for episode in episodes])
    assert mean_return <= np.mean(best) + 1e-6
    assert mean_return == pytest.approx(np.mean(best), abs=0.25)  # A policy that rests gets -5.


def test_without_copies_to_the_target_networks_nothing_is_bootstrapped():
    networks = learn(dataclasses.replace(CONFIG, target_update_period=10**9))
    assert q_at_the_end_of_the_line(networks) == pytest.approx(FIRST_REWARD, abs=0.1)


def test_a_wrong_discount_shows():
    networks = learn(dataclasses.replace(CONFIG, discount=0.9))
    assert q_at_the_end_of_the_line(networks) < Q_AT_THE_END_OF_THE_LINE - 0.15
