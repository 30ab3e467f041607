"""Test of Munchausen's target with hand-computed numbers."""

import math

import munchausen
import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.transitions import Transition


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value / munchausen.TAU) for value in values]
    return [weight / sum(weights) for weight in weights]


@pytest.fixture
def update() -> munchausen.MunchausenUpdate:
    spec = EnvironmentSpec(
        specs.BoundedArray([2], np.float32, -1, 1), specs.DiscreteArray(2), None, None
    )
    config = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(4,), frame_stack=0)
    return munchausen.MunchausenBuilder(config).make_update(spec)


@pytest.mark.parametrize("discount", [0.9, 0.0])
def test_the_target_by_hand(update, discount):
    before, after = [0.50, 0.47], [0.20, 0.26]  # The target network's values at S_t, S_{t+n}.
    update.network = lambda observation: tf.constant([[1.0, 2.0]])
    update.target_network = lambda rows: tf.constant([before if rows[0, 0] else after])
    transition = Transition(
        observation=tf.constant([[1.0, 0.0]]),
        action=tf.constant([1]),
        n_step_return=tf.constant([0.3]),
        n_step_discount=tf.constant([discount]),
        next_observation=tf.constant([[0.0, 0.0]]),
        learner_steps=tf.constant([0]),
    )
    loss, q_tm1 = update.compute_loss(transition)
    bonus = 0.9 * 0.03 * math.log(softmax(before)[1])
    policy = softmax(after)
    value = sum(p * (q - 0.03 * math.log(p)) for p, q in zip(policy, after, strict=True))
    td_error = 0.3 + bonus + discount * value - 2.0
    assert float(loss.td_error[0]) == pytest.approx(td_error, abs=1e-5)
    assert float(loss.loss[0]) == pytest.approx(0.5 * td_error**2, abs=1e-5)
    assert q_tm1.numpy().tolist() == [[1.0, 2.0]]


def test_the_bonus_has_a_lowest_value(update):
    update.network = lambda observation: tf.constant([[0.0, 0.0]])
    update.target_network = lambda observation: tf.constant([[0.0, 50.0]])
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
