"""Tests of the target of Munchausen Q-learning with numbers worked out by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.environments import EnvironmentSpec
from apex_agents.legal_actions import ILLEGAL
from apex_agents.replay.transitions import Transition


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value / 0.03) for value in values]
    return [weight / sum(weights) for weight in weights]


class Network:
    """A function of observations, which returns values or quantiles of two actions."""

    def __init__(self, function: Callable[[tf.Tensor], list]):
        self._function = function

    def return_distribution(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.constant(self._function(observation))

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        values = self.return_distribution(observation)
        return tf.reduce_mean(values, axis=2) if values.shape.ndims == 3 else values


def make_update(**fields: Any) -> DQNUpdate:
    spec = EnvironmentSpec(
        specs.BoundedArray([2], np.float32, -1, 1), specs.DiscreteArray(2), None, None
    )
    sizes = {"torso": "mlp", "mlp_hidden_sizes": (4,), "frame_stack": 0}
    config = ApexDQNConfig(target="munchausen", **sizes, **fields)
    return ApexDQNBuilder(config).make_update(spec)


def make_transition(discount: float) -> Transition:
    return Transition(
        observation=tf.constant([[1.0, 0.0]]),
        action=tf.constant([1]),
        n_step_return=tf.constant([0.3]),
        n_step_discount=tf.constant([discount]),
        next_observation=tf.constant([[0.0, 0.0]]),
        learner_steps=tf.constant([0]),
    )


@pytest.mark.parametrize("discount", [0.9, 0.0])
def test_the_target_by_hand(discount):
    update = make_update()
    before, after = [0.50, 0.47], [0.20, 0.26]  # The target network's values at S_t, S_{t+n}.
    update.network = Network(lambda observation: [[1.0, 2.0]])
    update.target_network = Network(lambda rows: [before if rows[0, 0] else after])
    loss, q_tm1 = update.compute_loss(make_transition(discount))
    bonus = 0.9 * 0.03 * math.log(softmax(before)[1])
    policy = softmax(after)
    value = sum(p * (q - 0.03 * math.log(p)) for p, q in zip(policy, after, strict=True))
    td_error = 0.3 + bonus + discount * value - 2.0
    assert float(loss.td_error[0]) == pytest.approx(td_error, abs=1e-5)
    assert float(loss.loss[0]) == pytest.approx(0.5 * td_error**2, abs=1e-5)
    assert q_tm1.numpy().tolist() == [[1.0, 2.0]]


def test_the_target_of_quantiles_by_hand():
    update = make_update(head="quantile", num_quantiles=2)
    before, after = [[0.4, 0.6], [0.4, 0.5]], [[0.1, 0.3], [0.2, 0.4]]
    update.network = Network(lambda observation: [[[0.0, 0.0], [0.1, 0.2]]])
    update.target_network = Network(lambda rows: [before if rows[0, 0] else after])
    loss, q_tm1 = update.compute_loss(make_transition(0.9))
    bonus = 0.9 * 0.03 * math.log(softmax([0.5, 0.45])[1])
    policy = softmax([0.2, 0.3])
    entropy = -sum(p * math.log(p) for p in policy)
    quantiles = [
        policy[0] * first + policy[1] * second for first, second in zip(*after, strict=True)
    ]
    targets = [0.3 + bonus + 0.9 * (quantile + 0.03 * entropy) for quantile in quantiles]
    assert float(loss.td_error[0]) == pytest.approx(sum(targets) / 2 - 0.15, abs=1e-5)
    # Every target is above both quantiles, 0.1 at 1/4 and 0.2 at 3/4, by less than 1.
    huber = [
        0.25 * 0.5 * (target - 0.1) ** 2 + 0.75 * 0.5 * (target - 0.2) ** 2 for target in targets
    ]
    assert float(loss.loss[0]) == pytest.approx(sum(huber) / 2, abs=1e-5)
    assert q_tm1.shape == [1, 2, 2]


def test_the_bonus_has_a_lowest_value():
    update = make_update()
    update.network = Network(lambda observation: [[0.0, 0.0]])
    update.target_network = Network(lambda observation: [[0.0, 50.0]])
    row = tf.constant([[0.0, 0.0]])
    transition = Transition(
        observation=row,
        action=tf.constant([0]),
        n_step_return=tf.constant([0.0]),
        n_step_discount=tf.constant([0.0]),
        next_observation=row,
        learner_steps=tf.constant([0]),
    )
    loss, _ = update.compute_loss(transition)
    assert float(loss.td_error[0]) == pytest.approx(-0.9)


def test_an_illegal_action_counts_for_nothing():
    update = make_update()
    update.network = Network(lambda observation: [[0.0, 0.0]])
    update.target_network = Network(lambda observation: [[0.4, ILLEGAL]])
    transition = make_transition(0.9)._replace(action=tf.constant([0]))
    loss, _ = update.compute_loss(transition)
    assert float(loss.td_error[0]) == pytest.approx(0.3 + 0.9 * 0.4)


@pytest.mark.parametrize("head", ["dueling", "quantile"])
def test_only_the_online_network_learns(head):
    update = make_update(head=head)
    transition = make_transition(0.9)
    variables = [*update.network.trainable_variables, *update.target_network.trainable_variables]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(update.compute_loss(transition)[0].loss)
    gradients = tape.gradient(loss, variables)
    num_online = len(update.network.trainable_variables)
    assert [gradient is not None for gradient in gradients[:num_online]] == [True] * num_online
    assert gradients[num_online:] == [None] * num_online
