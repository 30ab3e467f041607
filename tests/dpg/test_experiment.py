"""Tests of whole runs in one process: what a point on a line teaches, and what breaks it.

With gamma = 1/2, steps of 1/4 and a truncation that ends nothing, the best policy pushes the point
towards the middle: from x = 1 it passes 3/4, 1/2, 1/4 and 0, so that
q(1, -1) = -(3/4 + 1/2 * 1/2 + 1/4 * 1/4) = -1.0625.

Environments and networks are seeded, sampling in the replay is not: values differ from run to run
by some hundredths. The mutants differ by 0.3 from the healthy agent, three times the tolerance.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from experiments import assign_learned, learn, make_dpg_config

from apex_agents.acting.actor import ApexActor
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import DPGNetworks, make_networks
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.environments.toy import PointMass
from apex_agents.evaluation.episodes import play_episodes

Q_AT_THE_END_OF_THE_LINE = -1.0625
# The first of its rewards: a target network without copies says about 0 of the next state.
FIRST_REWARD = -0.75


def make_point_masses(num_envs: int, evaluation: bool = False):
    config = EnvironmentConfig("toy", "point_mass")
    return make_vector_environment(config, num_envs, seed=5, evaluation=evaluation)


def learn_networks(config: ApexDPGConfig) -> DPGNetworks:
    """Learn for 800 steps and return the networks."""
    seeds = itertools.count()
    builder = ApexDPGBuilder(config)
    learner = learn(builder, lambda: PointMass(seed=next(seeds)), max_learner_steps=800)
    networks = make_networks(config, make_point_masses(1).spec)
    assign_learned({name: net.variables for name, net in networks._asdict().items()}, learner)
    return networks


def q_at_the_end_of_the_line(networks: DPGNetworks) -> float:
    return float(networks.critic(tf.constant([[1.0]]), tf.constant([[-1.0]]))[0])


@pytest.fixture(scope="module")
def learned() -> DPGNetworks:
    return learn_networks(make_dpg_config())


def test_policy_pushes_towards_the_middle(learned):
    positions = tf.constant([[-1.0], [-0.5], [0.5], [1.0]])
    np.testing.assert_allclose(learned.policy(positions)[:, 0], [1, 1, -1, -1], atol=0.1)
    # Within a step of the middle the best push ends there: -x / 0.25.
    near = learned.policy(tf.constant([[-0.125], [0.0], [0.125]]))[:, 0]
    np.testing.assert_allclose(near, [0.5, 0.0, -0.5], atol=0.25)


def test_critic_knows_the_value(learned):
    assert q_at_the_end_of_the_line(learned) == pytest.approx(Q_AT_THE_END_OF_THE_LINE, abs=0.1)


def test_evaluation_is_close_to_the_best_return(learned):
    environment = make_point_masses(20, evaluation=True)
    builder = ApexDPGBuilder(make_dpg_config())
    policy = builder.make_evaluation_policy(environment.spec, 20, seed=0)
    for name, network in learned._asdict().items():
        for variable, source in zip(policy.variables[name], network.variables, strict=True):
            variable.assign(source)
    starts = make_point_masses(20, evaluation=True).reset().observation[:, 0]
    best = [-sum(max(abs(x) - 0.25 * k, 0.0) for k in range(1, 11)) for x in starts]
    episodes = play_episodes(environment, ApexActor(policy))
    mean_return = np.mean([episode.episode_return for episode in episodes])
    assert mean_return <= np.mean(best) + 1e-6
    assert mean_return == pytest.approx(np.mean(best), abs=0.25)  # A policy that rests gets -5.


def test_without_copies_to_the_target_networks_nothing_is_bootstrapped():
    networks = learn_networks(make_dpg_config(target_update_period=10**9))
    assert q_at_the_end_of_the_line(networks) == pytest.approx(FIRST_REWARD, abs=0.1)


def test_a_wrong_discount_shows():
    networks = learn_networks(make_dpg_config(discount=0.9))
    assert q_at_the_end_of_the_line(networks) < Q_AT_THE_END_OF_THE_LINE - 0.15


class DoublePointMass(PointMass):
    """A point whose actions are specified in float64."""

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((1,), np.float64, -1.0, 1.0)


def test_actions_in_float64_are_learned_from():
    builder = ApexDPGBuilder(make_dpg_config())
    assert learn(builder, DoublePointMass, max_learner_steps=2).num_steps == 2
