"""Tests of the epsilon-greedy policy and of the ladder of epsilons."""

import math

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.acting.exploration import epsilon_ladder
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.dqn.policy import EpsilonGreedyPolicy, MunchausenPolicy
from apex_agents.environments import EnvironmentConfig, make_vector_environment, restart_batch
from apex_agents.learning.losses import munchausen_values
from apex_agents.legal_actions import ILLEGAL

Q_VALUES = np.array([[1.0, 4.0, 2.0, 3.0], [9.0, 7.0, 6.0, 8.0], [-4.0, -3.0, -1.0, -2.0]])
GREEDY = [1, 0, 2]


class DoublingNetwork(snt.Module):
    """A network whose action values are twice the observation, so that a test can choose them."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(2.0)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return self.scale * tf.cast(observation, tf.float32)


def make_policy(epsilons: list[float], seed: int = 0) -> EpsilonGreedyPolicy:
    return EpsilonGreedyPolicy(DoublingNetwork(), epsilons, seed)


def test_greedy_without_epsilon():
    policy = make_policy([0.0, 0.0, 0.0])
    for _ in range(50):
        output = policy(restart_batch(Q_VALUES / 2))
        assert output.action.tolist() == GREEDY
        assert output.q_taken.tolist() == [4.0, 9.0, -1.0]
        assert output.value.tolist() == [4.0, 9.0, -1.0]
    assert output.action.dtype == np.int32


def test_munchausens_policy_gives_the_td_errors_of_its_loss():
    policy = MunchausenPolicy(DoublingNetwork(), [1.0, 1.0, 1.0], seed=0)
    # The other action is nearly as good as the best one; far below it; illegal.
    before = np.array([[0.50, 0.48], [0.50, -9.0], [0.0, ILLEGAL]], np.float32)
    after = np.array([[0.10, 0.13], [2.0, 2.0], [ILLEGAL, 1.0]], np.float32)
    seen = set()
    for _ in range(20):
        output, value = policy(restart_batch(before / 2)), policy(restart_batch(after / 2)).value
        action = tf.constant(output.action)
        bonus, expected = munchausen_values(tf.constant(before), action, tf.constant(after))
        q_taken = before[np.arange(3), output.action]
        td_error = 1.0 + 0.9 * value - output.q_taken
        np.testing.assert_allclose(td_error, 1.0 + bonus + 0.9 * expected - q_taken, rtol=1e-5)
        assert value[1] == pytest.approx(2.0 + 0.03 * math.log(2))
        seen |= {*enumerate(output.action.tolist())}
    assert seen == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)}


def test_every_env_has_its_own_epsilon():
    policy = make_policy([0.0, 1.0, 0.4])
    actions = np.array([policy(restart_batch(Q_VALUES / 2)).action for _ in range(2000)])
    frequencies = [np.bincount(of_one, minlength=4) / 2000 for of_one in actions.T]
    assert frequencies[0].tolist() == [0.0, 1.0, 0.0, 0.0]
    # The seed is fixed, so that the outcome is, too. A frequency of 2000 draws has a standard
    # deviation below sqrt(0.25 / 2000) = 0.0112: 0.056 is five of them.
    np.testing.assert_allclose(frequencies[1], [0.25, 0.25, 0.25, 0.25], atol=0.056)
    np.testing.assert_allclose(frequencies[2], [0.1, 0.1, 0.6 + 0.1, 0.1], atol=0.056)


def test_random_actions_are_drawn_whatever_values_are_learned():
    policy = make_policy([1.0])
    values = np.full([1, 4], -3e9, np.float32)  # Of rewards of -3e7 with a discount of 0.99.
    drawn = {int(policy(restart_batch(values)).action[0]) for _ in range(100)}
    assert drawn == {0, 1, 2, 3}


def test_envs_explore_independently():
    policy = make_policy([0.5] * 2)
    actions = np.array([policy(restart_batch(Q_VALUES[[0, 0]] / 2)).action for _ in range(200)])
    # Equal with probability 0.625^2 + 3 * 0.125^2 = 0.4375: 87.5 +- 5 * 7.0 of 200 times.
    assert 52 < np.sum(actions[:, 0] == actions[:, 1]) < 123


def test_output_is_that_of_the_action_taken_even_if_it_is_random():
    policy = make_policy([1.0, 1.0, 1.0])
    num_not_greedy = 0
    for _ in range(50):
        action, q_taken, value, _ = policy(restart_batch(Q_VALUES / 2))
        assert q_taken.tolist() == [Q_VALUES[i, action[i]] for i in range(3)]
        assert value.tolist() == [4.0, 9.0, -1.0]
        num_not_greedy += np.sum(action != GREEDY)
    assert num_not_greedy > 0


def test_seed_decides_the_actions():
    def play(seed: int) -> list[list[int]]:
        policy = make_policy([0.5] * 3, seed)
        return [policy(restart_batch(Q_VALUES / 2)).action.tolist() for _ in range(30)]

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_variables_are_those_of_the_network_in_use():
    policy = make_policy([0.0, 0.0, 0.0])
    policy(restart_batch(Q_VALUES))
    (scale,) = policy.variables["network"]
    scale.assign(-1.0)
    output = policy(restart_batch(Q_VALUES))
    assert output.action.tolist() == [0, 2, 0]
    assert output.value.tolist() == [-1.0, -6.0, 4.0]


def test_annealed_epsilon_falls_with_the_learner_steps_and_then_stays():
    policy = EpsilonGreedyPolicy(DoublingNetwork(), [0.2, 0.2, 0.2], 0, annealing_steps=100)
    (num_updates,) = policy.variables["num_updates"]
    for steps, epsilon in ((0, 1.0), (50, 0.6), (100, 0.2), (1000, 0.2)):
        num_updates.assign(steps)
        actions = np.array([policy(restart_batch(Q_VALUES / 2)).action for _ in range(1000)])
        share = np.mean(actions != GREEDY)
        # A random action is one of four; five standard deviations of 3000 draws.
        assert abs(share - 0.75 * epsilon) < 5 * np.sqrt(0.25 / 3000)


@pytest.mark.parametrize(
    ("config", "num_envs", "exponents"),
    [
        (ExplorationConfig(), 1, [1]),
        (ExplorationConfig(), 3, [1, 4.5, 8]),
        (ExplorationConfig(), 8, [1, 2, 3, 4, 5, 6, 7, 8]),  # 1 + i / 7 * 7
        (ExplorationConfig(alpha=2.0), 3, [1, 2, 3]),
        (  # 1 + i / 5 * 7, each twice.
            ExplorationConfig(num_distinct_epsilons=6),
            12,
            [1, 1, 2.4, 2.4, 3.8, 3.8, 5.2, 5.2, 6.6, 6.6, 8, 8],
        ),
        (ExplorationConfig(num_distinct_epsilons=6), 2, [1, 8]),
        (ExplorationConfig(num_distinct_epsilons=1), 4, [1, 1, 1, 1]),
    ],
)
def test_ladder_of_epsilons(config, num_envs, exponents):
    ladder = epsilon_ladder(config, num_envs)
    np.testing.assert_allclose(ladder, [0.4**exponent for exponent in exponents])


def test_six_epsilons_over_envs_that_are_no_multiple_of_six():
    ladder = epsilon_ladder(ExplorationConfig(num_distinct_epsilons=6), 16)
    values, counts = np.unique(ladder, return_counts=True)
    np.testing.assert_allclose(values[[0, -1]], [0.4**8, 0.4])
    assert sorted(counts.tolist()) == [2, 2, 3, 3, 3, 3]


def test_builder_gives_all_environments_the_epsilon_that_is_annealed():
    exploration = ExplorationConfig(epsilon=0.5, annealing_steps=100, evaluation_epsilon=0.25)
    builder = ApexDQNBuilder(ApexDQNConfig(torso="mlp", frame_stack=0, exploration=exploration))
    spec = make_vector_environment(EnvironmentConfig("toy", "catch"), 1, seed=0).spec
    policy = builder.make_policy(spec, [2, 3], num_envs=4, seed=0)
    assert policy.exploration["epsilon"].tolist() == [0.5, 0.5]
    assert [*policy.variables] == ["network", "num_updates"]
    evaluation_policy = builder.make_evaluation_policy(spec, num_envs=1, seed=0)
    assert [*evaluation_policy.variables] == ["network"]


def test_builder_gives_an_actor_its_part_of_the_ladder():
    config = ApexDQNConfig(
        torso="mlp",
        frame_stack=0,
        exploration=ExplorationConfig(epsilon=0.5, alpha=6.0, evaluation_epsilon=0.25),
    )
    builder = ApexDQNBuilder(config)
    spec = make_vector_environment(EnvironmentConfig("toy", "catch"), 1, seed=0).spec
    policy = builder.make_policy(spec, [2, 3], num_envs=4, seed=0)
    np.testing.assert_allclose(policy.exploration["epsilon"], [0.5 ** (1 + 4.0), 0.5 ** (1 + 6.0)])
    evaluation_policy = builder.make_evaluation_policy(spec, num_envs=3, seed=0)
    assert evaluation_policy.exploration["epsilon"].tolist() == [0.25, 0.25, 0.25]
