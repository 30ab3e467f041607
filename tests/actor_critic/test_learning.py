"""Tests of a worker's gradient, and of the update by the gradients of several."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from small_actor_critic import (
    NUM_ACTIONS,
    SPEC,
    E,
    T,
    make_config,
    make_network,
    make_rollout,
    of_envs,
)

from apex_agents.actor_critic.learning import METRICS, ActorCriticUpdate, Rollout
from apex_agents.actor_critic.networks import ActorCriticNetwork
from apex_agents.actor_critic.networks import make_network as make_network_of
from apex_agents.learning.gradients import to_vector
from apex_agents.networks.torsos import VectorTorso

CONFIG = make_config()


@pytest.fixture
def network() -> ActorCriticNetwork:
    return make_network()


def compute(network: ActorCriticNetwork, rollout: Rollout) -> tuple[np.ndarray, dict[str, float]]:
    update = ActorCriticUpdate(network, CONFIG)
    gradients, priorities, metrics = update.compute(rollout)
    assert priorities is None and tuple(metrics) == METRICS
    numbers = {name: value.numpy() for name, value in metrics.items()}
    return to_vector(gradients, update.trained).numpy(), numbers


def test_workers_of_one_environment_equal_one_worker(network):
    rollout = make_rollout(0)
    together, metrics = compute(network, of_envs(rollout, slice(0, E)))
    alone = [compute(network, of_envs(rollout, slice(i, i + 1))) for i in range(E)]
    steps = [one["num_steps"] for _, one in alone]
    assert steps == [T - 1, T, T]
    assert metrics["num_steps"] == 3 * T - 1
    mean = sum(n * gradient for n, (gradient, _) in zip(steps, alone, strict=True)) / sum(steps)
    np.testing.assert_allclose(together, mean, atol=1e-6)


@pytest.mark.parametrize("field", ["action", "reward", "discount"])
def test_a_step_out_of_the_last_state_counts_nothing(network, field):
    rollout = make_rollout(1)
    before, _ = compute(network, of_envs(rollout, slice(0, E)))
    changed = getattr(rollout, field).copy()
    changed[2, 0] = 1 - changed[2, 0]
    rollout = rollout._replace(**{field: changed})
    after, _ = compute(network, of_envs(rollout, slice(0, E)))
    np.testing.assert_allclose(before, after, atol=1e-7)


def test_bootstrapping_at_truncation_and_not_at_termination(network):
    rollout = make_rollout(2)

    def gradient(discount: float, last_observation: float) -> np.ndarray:
        rollout.discount[1, 0] = discount
        rollout.observation[2, 0] = last_observation
        return compute(network, of_envs(rollout, slice(0, 1)))[0]

    assert np.abs(gradient(0.9, 1.0) - gradient(0.9, 5.0)).max() > 1e-4
    np.testing.assert_allclose(gradient(0.0, 1.0), gradient(0.0, 5.0), atol=1e-7)


def test_metrics_and_gradient_of_one_step_by_hand(network):
    rollout = make_rollout(3)
    one = Rollout(
        *[tf.constant(field[:n, 1:2]) for field, n in zip(rollout, (2, 1, 1, 1, 1), strict=True)]
    )
    gradient, metrics = compute(network, one)
    logits, value = (tensor.numpy() for tensor in network(tf.constant(rollout.observation[:2, 1])))
    probabilities = np.exp(logits[0]) / np.exp(logits[0]).sum()
    entropy = -(probabilities * np.log(probabilities)).sum()
    advantage = rollout.reward[0, 1] + 0.9 * value[1] - value[0]
    action = rollout.action[0, 1]
    policy = -np.log(probabilities[action]) * advantage
    value_coefficient, entropy_coefficient = CONFIG.value_coefficient, CONFIG.entropy_coefficient
    expected = {
        "num_steps": 1.0,
        "loss": policy + value_coefficient * advantage**2 - entropy_coefficient * entropy,
        "policy_loss": policy,
        "value_loss": advantage**2,
        "entropy": entropy,
        "value": value[0],
    }
    assert metrics == pytest.approx(expected, rel=1e-5)

    variables = network.trainable_variables
    sizes = [variable.shape.num_elements() for variable in variables]
    parts = np.split(gradient, np.cumsum(sizes)[:-1])
    by_name = {v.name.split(":")[0]: part for v, part in zip(variables, parts, strict=True)}
    # Derivatives of -log pi(a) and of the negative entropy by the logits; a bias adds to its logit.
    of_logits = (probabilities - np.eye(NUM_ACTIONS)[action]) * advantage
    of_logits += entropy_coefficient * probabilities * (np.log(probabilities) + entropy)
    np.testing.assert_allclose(by_name["actor_critic_network/policy/b"], of_logits, rtol=1e-4)
    of_value = [-2.0 * value_coefficient * advantage]
    np.testing.assert_allclose(by_name["actor_critic_network/value/b"], of_value, rtol=1e-5)


def test_a_hidden_layer_is_rectified():
    torso = snt.Sequential([lambda observation: observation])
    network = ActorCriticNetwork(torso, 2, SPEC)
    network(tf.zeros([1, 2]))
    arrays = {
        "hidden/w": [[1.0, 1.0], [2.0, -2.0]],
        "hidden/b": [0.5, 0.5],
        "policy/w": [[1.0, 3.0], [10.0, 10.0]],
        "policy/b": [0.0, 1.0],
        "value/w": [[2.0], [10.0]],
        "value/b": [-1.0],
    }
    for variable in network.trainable_variables:
        name = variable.name.split(":")[0].removeprefix("actor_critic_network/")
        variable.assign(arrays.pop(name))
    assert not arrays
    # 1 + 2 * 1 + 0.5 = 3.5, and 1 - 2 * 1 + 0.5 = -0.5, which counts as 0.
    logits, value = network(tf.constant([[1.0, 1.0]]))
    np.testing.assert_allclose(logits, [[3.5, 3 * 3.5 + 1.0]])
    np.testing.assert_allclose(value, [2 * 3.5 - 1.0])


def test_one_update_by_hand():
    network = snt.Linear(2, with_bias=False)
    network(tf.zeros([1, 1]))
    network.w.assign([[1.0, -1.0]])
    config = make_config(
        learning_rate=0.1, rmsprop_decay=0.6, rmsprop_epsilon=0.01, max_gradient_norm=0.5
    )
    update = ActorCriticUpdate(network, config)
    # The gradient is (3, 4), of norm 5, and a tenth of it after clipping.
    metrics = update.apply([tf.constant([[3.0, 4.0]])])
    assert float(metrics["gradient_norm"]) == pytest.approx(5.0)
    clipped = np.array([0.3, 0.4])
    # Each parameter is divided by the root of its own mean square, which begins at 0.
    step = 0.1 * clipped / np.sqrt(0.4 * clipped**2 + 0.01)
    np.testing.assert_allclose(network.w, [[1.0, -1.0] - step], rtol=1e-5)
    assert int(update.num_updates) == 1


def test_the_learning_rate_falls_linearly_to_a_tenth():
    network = snt.Linear(1, with_bias=False)
    network(tf.zeros([1, 1]))
    rates = {"learning_rate": 0.1, "learning_rate_steps": 4}
    config = make_config(rmsprop_decay=1.0, rmsprop_epsilon=1.0, max_gradient_norm=1.0, **rates)
    update, places = ActorCriticUpdate(network, config), [float(network.w)]
    for _ in range(6):
        update.apply([tf.constant([[-1.0]])])  # Its mean square stays 0: a step is a rate.
        places.append(float(network.w))
    expected = [0.1, 0.0775, 0.055, 0.0325, 0.01, 0.01]
    np.testing.assert_allclose(np.diff(places), expected, atol=1e-6)


def test_a_gradient_that_is_not_finite_moves_nothing(network):
    update = ActorCriticUpdate(network, CONFIG)
    before = [variable.numpy() for variable in network.variables]
    metrics = update.apply([tf.fill(variable.shape, np.nan) for variable in update.trained])
    assert int(metrics["steps_skipped"]) == 1
    for variable, old in zip(network.variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)


def test_a_checkpoint_holds_the_network_and_the_optimizer(network):
    assert set(ActorCriticUpdate(network, CONFIG).state) == {"network", "optimizer", "num_updates"}


def test_the_value_may_have_a_torso_of_its_own():
    config = make_config(separate_value=True, hidden_size=4, mlp_activation="tanh")
    network = make_network_of(config, SPEC)
    observations = np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32)
    with tf.GradientTape(persistent=True) as tape:
        logits, value = network(tf.constant(observations))
    names = [variable.name for variable in network.trainable_variables]
    assert len(set(names)) == len(names)
    of_value = tape.gradient(value, network.trainable_variables)
    of_policy = tape.gradient(logits, network.trainable_variables)
    for name, *gradients in zip(names, of_value, of_policy, strict=True):
        is_of_value = "value" in name
        assert [gradient is not None for gradient in gradients] == [is_of_value, not is_of_value]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_layers_have_the_activation_of_the_config(activation):
    config = make_config(mlp_activation=activation)
    network = make_network_of(config, SPEC)
    first = {v.name: v.numpy() for v in network.variables if "linear_1" in v.name}
    observations = np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32)
    linear = observations @ first["torso/linear_1/w:0"] + first["torso/linear_1/b:0"]
    expected = np.tanh(linear) if activation == "tanh" else np.maximum(linear, 0)
    (torso,) = [m for m in network.submodules if isinstance(m, VectorTorso)]
    np.testing.assert_allclose(torso(tf.constant(observations)), expected, atol=1e-6)
