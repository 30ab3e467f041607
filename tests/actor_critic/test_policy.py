"""Tests of the stochastic policy."""

import numpy as np
from small_actor_critic import make_network

from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.environments import restart_batch

OBSERVATION = np.array([[1.0, -1.0, 0.5, 2.0]], np.float32)


def make_decided_network():
    """Make a network that prefers action 1 in odds of 3 to 1."""
    network = make_network()
    bias = next(v for v in network.trainable_variables if v.name.endswith("policy/b:0"))
    logits = network(OBSERVATION).logits.numpy()[0]
    bias.assign(np.array([-logits[0], np.log(3.0) - logits[1]], np.float32))
    return network


def test_actions_have_the_probabilities_of_the_network():
    policy = SoftmaxPolicy(make_decided_network(), seed=0)
    output = policy(restart_batch(np.repeat(OBSERVATION, 4000, axis=0)))
    assert output.action.dtype == np.int32
    # A standard deviation of 0.007.
    assert abs(output.action.mean() - 0.75) < 0.03
    np.testing.assert_allclose(output.value, make_network()(OBSERVATION).value[0], rtol=1e-5)


def test_a_greedy_policy_takes_the_likeliest_action():
    policy = SoftmaxPolicy(make_decided_network(), seed=0, is_greedy=True)
    assert (policy(restart_batch(np.repeat(OBSERVATION, 100, axis=0))).action == 1).all()


def test_actions_follow_the_seed():
    timestep = restart_batch(np.repeat(OBSERVATION, 100, axis=0))
    actions = [SoftmaxPolicy(make_network(), seed)(timestep).action for seed in (1, 1, 2)]
    assert (actions[0] == actions[1]).all() and (actions[0] != actions[2]).any()
