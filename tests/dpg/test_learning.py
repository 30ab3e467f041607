"""Tests of the update against steps worked out by hand, on a linear policy and a linear critic."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.learning import DPGUpdate
from apex_agents.dpg.networks import CriticEnsemble, DPGNetworks, make_distribution, smallest_of
from apex_agents.learning.distributions import ReturnDistribution, expected_value, quantiles
from apex_agents.learning.losses import TDLoss
from apex_agents.learning.update import Computed, Update, update_on_batch
from apex_agents.networks import RunningNormalization
from apex_agents.replay.transitions import Transition

LEARNING_RATE = 0.01


class LinearPolicy(snt.Module):
    """a_i = sum_s observation_s * w[s, i]: with one-hot states, a table [state, action]."""

    def __init__(self, w: list[list[float]]):
        super().__init__()
        self.w = tf.Variable(w)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.matmul(observation, self.w)


class RootPolicy(LinearPolicy):
    """The square root of what the linear policy takes: at 0, its derivative is infinite."""

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.sqrt(super().__call__(observation))


class LinearCritic(snt.Module):
    """q = u[state] + sum_i v[state, i] * a_i for one-hot states: dq/da is a row of v."""

    def __init__(self, u: list[float], v: list[list[float]]):
        super().__init__()
        self.u = tf.Variable(u)
        self.v = tf.Variable(v)

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(observation, self.u) + tf.reduce_sum(
            tf.matmul(observation, self.v) * action, axis=-1
        )

    return_distribution = __call__  # A number.


class NormalizingPolicy(LinearPolicy):
    """Normalizes the states first."""

    def __init__(self, w: list[list[float]]):
        super().__init__(w)
        self.normalization = RunningNormalization([2])

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return super().__call__(self.normalization(observation))


class NormalizingCritic(LinearCritic):
    """Normalizes the states first."""

    def __init__(self, u: list[float], v: list[list[float]]):
        super().__init__(u, v)
        self.normalization = RunningNormalization([2])

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return super().__call__(self.normalization(observation), action)

    return_distribution = __call__


# Two states, two action elements.
POLICY = [[0.5, -0.25], [0.1, 0.2]]
U, V = [1.0, 2.0], [[3.0, -0.5], [0.25, -4.0]]
TARGET_POLICY = [[0.0, 1.0], [-1.0, 0.5]]
TARGET_U, TARGET_V = [10.0, 20.0], [[2.0, 1.0], [4.0, -6.0]]

TRANSITIONS = Transition(
    observation=tf.constant([[1.0, 0.0], [0.0, 1.0]]),
    action=tf.constant([[0.2, 0.4], [-1.0, 1.0]]),
    n_step_return=tf.constant([0.5, -4.0]),
    n_step_discount=tf.constant([0.9, 0.0]),
    next_observation=tf.constant([[0.0, 1.0], [1.0, 0.0]]),
    learner_steps=tf.zeros(2),
)
WEIGHTS = tf.constant([1.0, 0.5])

# The target policy takes (-1, 0.5) in state 1, where the target critic says 20 - 4 - 3 = 13.
TD_ERROR = [0.5 + 0.9 * 13.0 - 1.4, -4.0 - -2.25]  # 10.8 and -1.75
LOSS = (1.0 * 0.5 * 10.8**2 + 0.5 * 0.5 * 1.75**2) / 2
# d loss / dq is -w * td / 2 (mean over two rows), dq/du = 1, dq/dv = a.
CRITIC_U_GRADIENT = [-10.8 / 2, 0.5 * 1.75 / 2]  # -5.4 and 0.4375
CRITIC_V_GRADIENT = [[-5.4 * 0.2, -5.4 * 0.4], [0.4375 * -1.0, 0.4375 * 1.0]]
CRITIC_NORM = math.sqrt(5.4**2 * (1 + 0.2**2 + 0.4**2) + 0.4375**2 * (1 + 1 + 1))
# dq/da is (3, -0.5) in state 0 and (0.25, -4) in state 1, clipped to (1, -0.5) and (0.25, -1); the
# optimizer descends its negative, averaged over two rows.
POLICY_GRADIENT = [[-1.0 / 2, 0.5 / 2], [-0.25 / 2, 1.0 / 2]]
POLICY_Q = [1.0 + 3.0 * 0.5 - 0.5 * -0.25, 2.0 + 0.25 * 0.1 - 4.0 * 0.2]  # At a = pi(s).

EAGER_AND_GRAPH = pytest.mark.parametrize(
    "run", [lambda update: update, tf.function], ids=["eager", "tf.function"]
)
# The last one gives gradients that are finite, but not the squares of which their norm is the sum.
RETURN_THAT_SPOILS = pytest.mark.parametrize("spoilt", [math.nan, 1e30])


class Parts:
    """An update with its networks; target networks get their own values after the first copy."""

    def __init__(
        self,
        make_policy: Callable[..., snt.Module] = LinearPolicy,
        update_class: type[DPGUpdate] = DPGUpdate,
        **settings,
    ):
        config = ApexDPGConfig(**{"learning_rate": LEARNING_RATE, **settings})
        self.online = DPGNetworks(make_policy(POLICY), LinearCritic(U, V))
        self.target = DPGNetworks(LinearPolicy(POLICY), LinearCritic(U, V))
        self.update = update_class(self.online, self.target, config)
        self.target.policy.w.assign(TARGET_POLICY)
        self.target.critic.u.assign(TARGET_U)
        self.target.critic.v.assign(TARGET_V)

    def gradients(self, name: str) -> list[np.ndarray]:
        """Return what the first update handed to an optimizer: its first moments are a tenth."""
        return [m.numpy() / 0.1 for m in self.update.state[f"{name}_optimizer"].m]

    def values(self, networks: DPGNetworks) -> list:
        variables = (networks.policy.w, networks.critic.u, networks.critic.v)
        return [variable.numpy().tolist() for variable in variables]

    def learned(self) -> list[bytes]:
        """Return the bits of all that a checkpoint holds, but for the number of updates."""
        parts = [part for name, part in self.update.state.items() if name != "num_updates"]
        return [variable.numpy().tobytes() for part in parts for variable in part.variables]


def in_one(update: Update) -> Callable[[Transition, tf.Tensor], Computed]:
    """Return both halves of an update as one function."""
    return functools.partial(update_on_batch, update)


def spoil(n_step_return: float) -> Transition:
    """Return the batch with another return in its first row."""
    return TRANSITIONS._replace(n_step_return=tf.constant([n_step_return, -4.0]))


class NextObservationsFirst(DPGUpdate):
    """Evaluates the next observations by the online networks."""

    def compute_critic_loss(self, transitions):
        policy, critic = self.networks
        critic(transitions.next_observation, policy(transitions.next_observation))
        return super().compute_critic_loss(transitions)


@pytest.mark.parametrize("update_class", [DPGUpdate, NextObservationsFirst])
@EAGER_AND_GRAPH
def test_an_update_adds_its_observations_to_the_statistics_of_both_networks(run, update_class):
    online, target = (
        DPGNetworks(NormalizingPolicy(POLICY), NormalizingCritic(U, V)) for _ in range(2)
    )
    update = update_class(online, target, ApexDPGConfig(target_update_period=2))
    next_observation = 9.0 * TRANSITIONS.next_observation
    run(in_one(update))(TRANSITIONS._replace(next_observation=next_observation), WEIGHTS)
    for network in online:
        assert int(network.normalization.count) == 2
        assert network.normalization.mean.numpy().tolist() == [0.5, 0.5]
    assert [int(network.normalization.count) for network in target] == [0, 0]


def make_column(tensor: tf.Tensor) -> tf.Tensor:
    return tensor[:, tf.newaxis]


@EAGER_AND_GRAPH
@pytest.mark.parametrize(
    "changes",
    [
        {"n_step_return": make_column(TRANSITIONS.n_step_return)},
        {"n_step_discount": make_column(TRANSITIONS.n_step_discount)},
        {"action": make_column(TRANSITIONS.action)},
        {"action": TRANSITIONS.action[:, :1]},
        {"action": TRANSITIONS.action[:1]},
    ],
)
def test_transitions_of_another_shape_are_refused(changes, run):
    with pytest.raises(ValueError, match="shape"):
        run(in_one(Parts().update))(TRANSITIONS._replace(**changes), WEIGHTS)


@EAGER_AND_GRAPH
@pytest.mark.parametrize("weights", [make_column(WEIGHTS), WEIGHTS[:1], tf.constant(1.0)])
def test_weights_of_another_shape_are_refused(weights, run):
    parts = Parts()
    with pytest.raises(ValueError, match="weights"):
        run(in_one(parts.update))(TRANSITIONS, weights)
    assert parts.values(parts.online)[1:] == [U, V]


@EAGER_AND_GRAPH
def test_gradients_priorities_and_metrics(run):
    parts = Parts()
    output = run(in_one(parts.update))(TRANSITIONS, WEIGHTS)
    np.testing.assert_allclose(output.priorities, [10.8, 1.75], rtol=1e-6)
    metrics = {name: float(value) for name, value in output.metrics.items()}
    assert metrics == pytest.approx(
        {
            "loss": LOSS,
            "td_error": (10.8 + 1.75) / 2,
            "q_value": (1.4 - 2.25) / 2,
            "gradient_norm": CRITIC_NORM,
            "policy_q_value": (2.625 + 1.225) / 2,
            "action_gradient": (3.0 + 0.5 + 0.25 + 4.0) / 4,
            "policy_gradient_norm": math.sqrt(0.5**2 + 0.25**2 + 0.125**2 + 0.5**2),
            "steps_skipped": 0,
        }
    )
    assert pytest.approx([2.625, 1.225]) == POLICY_Q
    u_gradient, v_gradient = parts.gradients("critic")
    np.testing.assert_allclose(u_gradient, CRITIC_U_GRADIENT, rtol=1e-5)
    np.testing.assert_allclose(v_gradient, CRITIC_V_GRADIENT, rtol=1e-5)
    (policy_gradient,) = parts.gradients("policy")
    np.testing.assert_allclose(policy_gradient, POLICY_GRADIENT, rtol=1e-5)


def test_parameters_move_against_their_gradients_and_targets_stay():
    parts = Parts()
    update_on_batch(parts.update, TRANSITIONS, WEIGHTS)
    # The first step of Adam is the learning rate in the direction of each gradient's sign.
    step = LEARNING_RATE
    policy, u, v = parts.values(parts.online)
    np.testing.assert_allclose(
        policy, [[0.5 + step, -0.25 - step], [0.1 + step, 0.2 - step]], rtol=1e-4
    )
    np.testing.assert_allclose(u, [1.0 + step, 2.0 - step], rtol=1e-5)
    np.testing.assert_allclose(
        v, [[3.0 + step, -0.5 + step], [0.25 + step, -4.0 - step]], rtol=1e-5
    )
    assert parts.values(parts.target) == [TARGET_POLICY, TARGET_U, TARGET_V]


def test_the_policy_may_have_a_learning_rate_of_its_own():
    parts = Parts(policy_learning_rate=3 * LEARNING_RATE)
    update_on_batch(parts.update, TRANSITIONS, WEIGHTS)
    policy, u, _ = parts.values(parts.online)
    np.testing.assert_allclose(np.abs(np.array(policy) - POLICY), 3 * LEARNING_RATE, rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.array(u) - U), LEARNING_RATE, rtol=1e-3)


def test_dq_da_is_clipped_element_by_element_and_the_policys_gradients_are_not():
    parts = Parts(max_action_gradient=0.3)
    # Ten times as large a state gives ten times as large a dq/da, before clipping, and a gradient
    # of the parameters ten times as large as the clipped dq/da: 1.5, far above 0.3.
    batch = TRANSITIONS._replace(observation=10.0 * TRANSITIONS.observation)
    update_on_batch(parts.update, batch, WEIGHTS)
    (gradient,) = parts.gradients("policy")
    # dq/da is (30, -5) and (2.5, -40).
    expected = [[-0.3 * 10 / 2, 0.3 * 10 / 2], [-0.3 * 10 / 2, 0.3 * 10 / 2]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_critics_gradients_are_clipped_by_their_global_norm():
    parts = Parts(max_gradient_norm=0.5)
    output = update_on_batch(parts.update, TRANSITIONS, WEIGHTS)
    scale = 0.5 / CRITIC_NORM
    u_gradient, v_gradient = parts.gradients("critic")
    np.testing.assert_allclose(u_gradient, scale * np.array(CRITIC_U_GRADIENT), rtol=1e-5)
    np.testing.assert_allclose(v_gradient, scale * np.array(CRITIC_V_GRADIENT), rtol=1e-5)
    np.testing.assert_allclose(parts.gradients("policy")[0], POLICY_GRADIENT, rtol=1e-5)
    assert float(output.metrics["gradient_norm"]) == pytest.approx(CRITIC_NORM)


def test_both_target_networks_move_at_the_configs_rate():
    parts = Parts(target_update_period=1, target_update_rate=0.25)
    update_on_batch(parts.update, TRANSITIONS, WEIGHTS)
    first = [TARGET_POLICY, TARGET_U, TARGET_V]
    for online, target, before in zip(
        parts.values(parts.online), parts.values(parts.target), first, strict=True
    ):
        expected = np.array(before) + 0.25 * (np.array(online) - np.array(before))
        np.testing.assert_allclose(target, expected, rtol=1e-5)


def test_state_holds_all_that_the_next_update_depends_on(tmp_path):
    parts = Parts(target_update_period=4)
    for _ in range(3):
        update_on_batch(parts.update, TRANSITIONS, WEIGHTS)
    path = tf.train.Checkpoint(**parts.update.state).write(str(tmp_path / "state"))
    update_on_batch(parts.update, TRANSITIONS, WEIGHTS)

    restored = Parts(target_update_period=4)
    tf.train.Checkpoint(**restored.update.state).read(path).assert_consumed()
    update_on_batch(restored.update, TRANSITIONS, WEIGHTS)
    assert restored.values(restored.online) == parts.values(parts.online)
    assert restored.values(restored.target) == parts.values(parts.target)
    assert parts.values(parts.target) == parts.values(parts.online)


@pytest.mark.fault(
    breaks="a batch whose gradients of the critic are NaN or infinite (DPG)",
    holds="critic and policy stay as they are; counted",
)
@EAGER_AND_GRAPH
@RETURN_THAT_SPOILS
def test_critics_gradients_that_are_not_finite_change_nothing(run, spoilt):
    parts = Parts()
    step = run(in_one(parts.update))
    step(TRANSITIONS, WEIGHTS)
    before = parts.learned()
    # Policy, u and v, online and target; two moments of each, and a count for each optimizer.
    assert len(before) == 3 + 3 + 2 * 3 + 2
    metrics = step(spoil(spoilt), WEIGHTS).metrics
    assert parts.learned() == before
    assert (int(metrics["steps_skipped"]), int(parts.update.num_updates)) == (1, 2)
    assert not np.isfinite(metrics["gradient_norm"])
    assert np.isfinite(metrics["policy_gradient_norm"])


@pytest.mark.fault(
    breaks="a batch whose gradients of the policy are NaN or infinite (DPG)",
    holds="critic and policy stay as they are; counted",
)
@EAGER_AND_GRAPH
def test_policys_gradients_that_are_not_finite_change_nothing(run):
    parts = Parts(make_policy=RootPolicy)
    step = run(in_one(parts.update))
    parts.online.policy.w.assign([[0.5, 0.25], [0.1, 0.2]])
    step(TRANSITIONS, WEIGHTS)
    parts.online.policy.w.assign([[0.5, 0.0], [0.1, 0.2]])
    before = parts.learned()
    metrics = step(TRANSITIONS, WEIGHTS).metrics
    assert parts.learned() == before
    assert int(metrics["steps_skipped"]) == 1
    assert not np.isfinite(metrics["policy_gradient_norm"])
    assert np.isfinite(metrics["gradient_norm"])


def test_actors_get_the_online_networks():
    parts = Parts()
    (policy,) = parts.update.variables["policy"]
    assert policy is parts.online.policy.w
    assert {id(v) for v in parts.update.variables["critic"]} == {
        id(parts.online.critic.u),
        id(parts.online.critic.v),
    }


class TableCritic(snt.Module):
    """Logits or quantiles that do not depend on the action; states are one-hot."""

    def __init__(self, table: list[list[float]], distribution: ReturnDistribution):
        super().__init__()
        self.table, self._mean = tf.Variable(table), distribution.mean

    def return_distribution(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return tf.matmul(observation, self.table) + 0.0 * tf.reduce_sum(action)

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return self._mean(self.return_distribution(observation, action))


@pytest.mark.parametrize("critic", ["quantile", "categorical"])
def test_a_critic_of_distributions_is_prioritized_by_the_error_of_its_means(critic):
    config = ApexDPGConfig(critic=critic, num_atoms=2, min_return=0, max_return=20)
    distribution = make_distribution(config)
    # Means: quantiles (1, 3) and (4, 8); probabilities 1/4 and 3/4, 1/2 and 1/2 of 0 and 20.
    tables = {
        "quantile": ([[1.0, 3.0], [0.0, 1.0]], [[0.0, 0.0], [4.0, 8.0]]),
        "categorical": ([[0.0, math.log(3.0)], [0.0, 0.0]], [[9.0, 0.0], [1.0, 1.0]]),
    }
    means = {"quantile": (2.0, 0.5, 6.0), "categorical": (15.0, 10.0, 10.0)}[critic]
    online, target = [
        DPGNetworks(LinearPolicy(POLICY), TableCritic(table, distribution))
        for table in tables[critic]
    ]
    update = DPGUpdate(online, target, config)
    target.critic.table.assign(tables[critic][1])
    output = update_on_batch(update, TRANSITIONS, WEIGHTS)
    expected = [0.5 + 0.9 * means[2] - means[0], -4.0 - means[1]]
    np.testing.assert_allclose(output.priorities, np.abs(expected), rtol=1e-5)
    assert float(output.metrics["q_value"]) == pytest.approx((means[0] + means[1]) / 2)
    # Adam's first step lowers what has a positive gradient by the learning rate: in state 1, which
    # has terminated with -4, the higher return becomes less likely, both quantiles fall.
    steps = (online.critic.table.numpy() - tables[critic][0])[1] / config.learning_rate
    np.testing.assert_allclose(steps, [-1, -1] if critic == "quantile" else [1, -1], rtol=0.01)


@EAGER_AND_GRAPH
def test_losses_of_the_users_are_descended(run):
    class Imitation(DPGUpdate):
        """Another loss of the critic, and a term that draws the policy to the actions taken."""

        def compute_critic_loss(self, transitions):
            (loss, td_error), q_taken = super().compute_critic_loss(transitions)
            return TDLoss(2 * loss, 3 * td_error), q_taken

        def compute_policy_loss(self, transitions):
            loss = super().compute_policy_loss(transitions)
            error = self.networks.policy(transitions.observation) - transitions.action
            return loss._replace(loss=loss.loss + 10.0 * tf.reduce_sum(error**2, axis=-1))

    parts = Parts(update_class=Imitation)
    output = run(in_one(parts.update))(TRANSITIONS, WEIGHTS)
    assert float(output.metrics["loss"]) == pytest.approx(2 * LOSS)
    assert float(output.metrics["policy_q_value"]) == pytest.approx(sum(POLICY_Q) / 2)
    np.testing.assert_allclose(output.priorities, 3 * np.abs(TD_ERROR), rtol=1e-5)
    u_gradient, v_gradient = parts.gradients("critic")
    np.testing.assert_allclose(u_gradient, 2 * np.array(CRITIC_U_GRADIENT), rtol=1e-5)
    np.testing.assert_allclose(v_gradient, 2 * np.array(CRITIC_V_GRADIENT), rtol=1e-5)
    # The term's derivative is 20 * (a - A) / 2; the actions taken are (0.2, 0.4) and (-1, 1).
    term = 10.0 * np.array([[0.5 - 0.2, -0.25 - 0.4], [0.1 + 1.0, 0.2 - 1.0]])
    (gradient,) = parts.gradients("policy")
    np.testing.assert_allclose(gradient, POLICY_GRADIENT + term, rtol=1e-5)


def test_several_critics_learn_from_the_smallest_value():
    q_tm1 = tf.constant([[1.0, 3.0], [5.0, 2.0]])
    q_t = tf.constant([[6.0, 4.0], [7.0, 8.0]])
    r_t, d_t = tf.constant([0.5, -4.0]), tf.constant([0.9, 0.5])
    with tf.GradientTape() as tape:
        tape.watch([q_tm1, q_t])
        loss, td_error = smallest_of(2, expected_value()).td_loss(q_tm1, r_t, d_t, q_t)
    # Both learn 0.5 + 0.9 * 4 = 4.1, and -4 + 0.5 * 7 = -0.5; errors are those of 1 and 2.
    np.testing.assert_allclose(td_error, [3.1, -2.5], rtol=1e-5)
    np.testing.assert_allclose(loss, [(3.1**2 + 1.1**2) / 2, (5.5**2 + 2.5**2) / 2], rtol=1e-5)
    gradient, gradient_of_target = tape.gradient(loss, [q_tm1, q_t])
    np.testing.assert_allclose(gradient, [[-3.1, -1.1], [5.5, 2.5]], rtol=1e-5)
    assert gradient_of_target is None


def test_the_smallest_value_is_that_of_a_whole_distribution():
    # Means 5 and 4: the second critic's quantiles are the target, not the smaller ones of both.
    z_t = tf.constant([[[0.0, 10.0], [4.0, 4.0]]])
    z_tm1 = tf.constant([[[0.0, 2.0], [1.0, 7.0]]])  # Means 1 and 4.
    one = quantiles(2)
    loss, td_error = smallest_of(2, one).td_loss(z_tm1, tf.ones([1]), tf.ones([1]), z_t)
    np.testing.assert_allclose(td_error, [5.0 - 1.0])
    # Both targets are 5: sum_i tau_i * huber(5 - z[i]), and 1 - tau_i where z[i] is above.
    expected = (0.25 * 4.5 + 0.75 * 2.5) + (0.25 * 3.5 + 0.25 * 1.5)
    np.testing.assert_allclose(loss, [expected])


def test_a_policy_ascends_the_smallest_of_several_values():
    def make_critics() -> list[LinearCritic]:
        return [LinearCritic([0.0, 5.0], [[0.5, 0.5]] * 2), LinearCritic(U, V)]

    config = ApexDPGConfig(num_critics=2, learning_rate=LEARNING_RATE, max_action_gradient=100.0)
    distribution = make_distribution(config)
    critics = make_critics()
    online, target = [
        DPGNetworks(LinearPolicy(POLICY), CriticEnsemble(of_one, distribution))
        for of_one in (critics, make_critics())
    ]
    output = update_on_batch(DPGUpdate(online, target, config), TRANSITIONS, WEIGHTS)
    # At pi(S): 0.125 and 5.15 of the first critic, 2.625 and 1.225 of the second one.
    assert float(output.metrics["policy_q_value"]) == pytest.approx((0.125 + 1.225) / 2)
    # Adam's first step has the size of the learning rate and the sign of dq/da.
    steps = (online.policy.w.numpy() - POLICY) / LEARNING_RATE
    np.testing.assert_allclose(steps, [[1.0, 1.0], [1.0, -1.0]], rtol=1e-3)
    # Both critics have learned.
    first, second = (critic.u.numpy() for critic in critics)
    assert (first != [0.0, 5.0]).all() and (second != U).all()
