"""Tests of the update against steps worked out by hand."""

import functools
import itertools
import math
import pathlib
import runpy
from collections.abc import Callable

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents import precision
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.dqn.networks import ActionValueNetwork
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.learning.distributions import expected_value, quantiles
from apex_agents.learning.losses import TDLoss
from apex_agents.learning.update import Computed, Update, update_on_batch
from apex_agents.networks import RunningNormalization
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.transitions import Transition

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"

# Action values are a table: states are one-hot, the network is one matrix [state, action].
ONLINE = [[1.0, 2.0], [3.0, 5.0]]
TARGET = [[-9.0, -9.0], [7.0, 4.0]]

TRANSITIONS = Transition(
    observation=tf.constant([[1.0, 0.0], [0.0, 1.0]]),
    action=tf.constant([0, 1], tf.int32),
    n_step_return=tf.constant([0.5, -1.0]),
    n_step_discount=tf.constant([0.9, 0.0]),
    next_observation=tf.constant([[0.0, 1.0], [1.0, 0.0]]),
    learner_steps=tf.zeros(2),
)
WEIGHTS = tf.constant([1.0, 0.5])
# In state 1 the online network prefers action 1, which the target network values at 4.
TD_ERROR = [0.5 + 0.9 * 4.0 - 1.0, -1.0 - 5.0]  # 3.1 and -6
# Mean of w * 0.5 * td^2 over two rows; d/dq of it is -w * td / 2.
LOSS = (1.0 * 0.5 * 3.1 * 3.1 + 0.5 * 0.5 * 6.0 * 6.0) / 2
GRADIENTS = (-1.0 * 3.1 / 2, 0.5 * 6.0 / 2)  # -1.55 at [0, 0] and 1.5 at [1, 1]
GRADIENT_NORM = math.sqrt(1.55 * 1.55 + 1.5 * 1.5)

LEARNING_RATE, DECAY, EPSILON = 0.1, 0.6, 0.01

EAGER_AND_GRAPH = pytest.mark.parametrize(
    "run", [lambda update: update, tf.function], ids=["eager", "tf.function"]
)
# The last one gives gradients that are finite, but not the squares of which their norm is the sum.
RETURN_THAT_SPOILS = pytest.mark.parametrize("spoilt", [math.nan, 1e30])


def make_linear(values: list[list[float]]) -> snt.Linear:
    network = snt.Linear(2, with_bias=False)
    network(tf.zeros([1, 2]))
    network.w.assign(values)
    return network


def make_update(
    max_gradient_norm: float = 40.0,
    target_update_period: int = 1000,
    update_class: type[DQNUpdate] = DQNUpdate,
) -> tuple[DQNUpdate, snt.Linear, snt.Linear]:
    config = ApexDQNConfig(
        learning_rate=LEARNING_RATE,
        rmsprop_decay=DECAY,
        rmsprop_epsilon=EPSILON,
        max_gradient_norm=max_gradient_norm,
        target_update_period=target_update_period,
    )
    network, target_network = make_linear(ONLINE), make_linear(TARGET)
    values = [ActionValueNetwork(layer, expected_value()) for layer in (network, target_network)]
    update = update_class(*values, config)
    target_network.w.assign(TARGET)
    return update, network, target_network


def in_one(update: Update) -> Callable[[Transition, tf.Tensor], Computed]:
    """Return both halves of an update as one function."""
    return functools.partial(update_on_batch, update)


def spoil(n_step_return: float) -> Transition:
    """Return the batch with another return in its first row."""
    return TRANSITIONS._replace(n_step_return=tf.constant([n_step_return, -1.0]))


def learned(update: DQNUpdate) -> list[bytes]:
    """Return the bits of all that a checkpoint holds, but for the number of updates."""
    parts = [part for name, part in update.state.items() if name != "num_updates"]
    return [variable.numpy().tobytes() for part in parts for variable in part.variables]


def first_rmsprop_step(gradient: float) -> float:
    """Return by how much the first step of centered RMSProp lowers a parameter."""
    mean_square, mean = (1 - DECAY) * gradient**2, (1 - DECAY) * gradient
    return LEARNING_RATE * gradient / math.sqrt(mean_square - mean**2 + EPSILON)


@EAGER_AND_GRAPH
def test_one_update(run):
    update, network, target_network = make_update()
    output = run(in_one(update))(TRANSITIONS, WEIGHTS)
    expected = [
        [1.0 - first_rmsprop_step(GRADIENTS[0]), 2.0],
        [3.0, 5.0 - first_rmsprop_step(GRADIENTS[1])],
    ]
    np.testing.assert_allclose(network.w, expected, rtol=1e-6)
    np.testing.assert_array_equal(target_network.w, TARGET)
    np.testing.assert_allclose(output.priorities, np.abs(TD_ERROR), rtol=1e-6)
    metrics = {name: float(value) for name, value in output.metrics.items()}
    assert metrics == pytest.approx(
        {
            "loss": LOSS,
            "td_error": (3.1 + 6.0) / 2,
            "q_value": (1.0 + 2.0 + 3.0 + 5.0) / 4,
            "gradient_norm": GRADIENT_NORM,
            "steps_skipped": 0,
        }
    )


@EAGER_AND_GRAPH
def test_a_loss_of_the_users_is_descended_and_its_error_is_the_priority(run):
    class DoubledLoss(DQNUpdate):
        def compute_loss(self, transitions):
            (loss, td_error), q_tm1 = super().compute_loss(transitions)
            return TDLoss(2 * loss, 3 * td_error), q_tm1

    update, network, _ = make_update(update_class=DoubledLoss)
    output = run(in_one(update))(TRANSITIONS, WEIGHTS)
    assert float(output.metrics["loss"]) == pytest.approx(2 * LOSS)
    np.testing.assert_allclose(output.priorities, 3 * np.abs(TD_ERROR), rtol=1e-6)
    assert float(network.w[0, 0]) == pytest.approx(1.0 - first_rmsprop_step(2 * GRADIENTS[0]))


@EAGER_AND_GRAPH
def test_the_example_of_a_loss_lowers_targets_by_the_gap_to_the_best_action(run):
    example = runpy.run_path(str(EXAMPLES / "own_loss.py"))
    update, _, _ = make_update(update_class=example["AdvantageLearningUpdate"])
    output = run(in_one(update))(TRANSITIONS, WEIGHTS)
    # The target network has -9 for both actions of state 0; 7 and 4 in state 1, of action 1.
    expected = [3.1 - 0.1 * 0.0, -6.0 - 0.1 * (7.0 - 4.0)]
    np.testing.assert_allclose(output.priorities, np.abs(expected), rtol=1e-6)


def test_gradients_are_clipped_by_their_global_norm():
    update, network, _ = make_update(max_gradient_norm=0.5)
    output = update_on_batch(update, TRANSITIONS, WEIGHTS)
    scale = 0.5 / GRADIENT_NORM
    expected = [
        [1.0 - first_rmsprop_step(scale * GRADIENTS[0]), 2.0],
        [3.0, 5.0 - first_rmsprop_step(scale * GRADIENTS[1])],
    ]
    np.testing.assert_allclose(network.w, expected, rtol=1e-6)
    assert float(output.metrics["gradient_norm"]) == pytest.approx(GRADIENT_NORM)


class TwoTables(snt.Module):
    """Action values that are the sum of two tables, whose gradients are equal."""

    def __init__(self):
        super().__init__()
        self.first, self.second = tf.Variable(ONLINE), tf.Variable(tf.zeros([2, 2]))

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.matmul(observation, self.first + self.second)

    return_distribution = __call__  # A number for each action.


def test_the_norm_is_that_of_the_gradients_of_all_variables_together():
    network, target_network = TwoTables(), TwoTables()
    config = ApexDQNConfig(
        learning_rate=LEARNING_RATE,
        rmsprop_decay=DECAY,
        rmsprop_epsilon=EPSILON,
        max_gradient_norm=0.5,
    )
    update = DQNUpdate(network, target_network, config)
    target_network.first.assign(TARGET)
    output = update_on_batch(update, TRANSITIONS, WEIGHTS)
    norm = math.sqrt(2) * GRADIENT_NORM
    assert float(output.metrics["gradient_norm"]) == pytest.approx(norm)
    steps = [first_rmsprop_step(0.5 / norm * gradient) for gradient in GRADIENTS]
    np.testing.assert_allclose(np.diag(network.second), [-step for step in steps], rtol=1e-5)


def make_column(tensor: tf.Tensor) -> tf.Tensor:
    return tensor[:, tf.newaxis]


@EAGER_AND_GRAPH
@pytest.mark.parametrize("weights", [make_column(WEIGHTS), WEIGHTS[:1], tf.constant(1.0)])
def test_weights_of_another_shape_are_refused(weights, run):
    update, network, _ = make_update()
    with pytest.raises(ValueError, match="weights"):
        run(in_one(update))(TRANSITIONS, weights)
    assert network.w.numpy().tolist() == ONLINE


def test_state_holds_all_that_the_next_update_depends_on(tmp_path):
    update, network, target_network = make_update(target_update_period=4)
    for _ in range(3):
        update_on_batch(update, TRANSITIONS, WEIGHTS)
    path = tf.train.Checkpoint(**update.state).write(str(tmp_path / "state"))
    update_on_batch(update, TRANSITIONS, WEIGHTS)

    restored, restored_network, restored_target = make_update(target_update_period=4)
    tf.train.Checkpoint(**restored.state).read(path).assert_consumed()
    update_on_batch(restored, TRANSITIONS, WEIGHTS)
    np.testing.assert_array_equal(restored_network.w, network.w)
    np.testing.assert_array_equal(restored_target.w, target_network.w)
    np.testing.assert_array_equal(target_network.w, network.w)


@pytest.mark.fault(
    breaks="a batch whose gradients are NaN or infinite (DQN)",
    holds="the network and its optimizer stay as they are; counted",
)
@EAGER_AND_GRAPH
@RETURN_THAT_SPOILS
def test_gradients_that_are_not_finite_change_nothing(run, spoilt):
    update, _, _ = make_update()
    step = run(in_one(update))
    step(TRANSITIONS, WEIGHTS)
    before = learned(update)
    assert len(before) == 2 + 3  # Two networks; mean, mean square and momentum.
    output = step(spoil(spoilt), WEIGHTS)
    assert learned(update) == before
    assert (int(output.metrics["steps_skipped"]), int(update.num_updates)) == (1, 2)
    assert not np.isfinite(output.metrics["gradient_norm"])
    assert int(step(TRANSITIONS, WEIGHTS).metrics["steps_skipped"]) == 1
    assert learned(update) != before


@EAGER_AND_GRAPH
def test_target_network_is_copied_on_schedule_when_steps_are_skipped(run):
    update, network, target_network = make_update(target_update_period=3)
    step = run(in_one(update))
    online, target = [], []
    for n_step_return in (0.5, math.nan, math.nan, 0.5, math.nan, 0.5, 0.5):
        step(spoil(n_step_return), WEIGHTS)
        online.append(network.w.numpy().tolist())
        target.append(target_network.w.numpy().tolist())
    assert target == [TARGET, TARGET, online[0], online[0], online[0], online[5], online[5]]
    moved = [before != after for before, after in itertools.pairwise([ONLINE, *online])]
    assert moved == [True, False, False, True, False, True, True]


class NextObservationsFirst(DQNUpdate):
    """Evaluates the next observations before the others."""

    def compute_loss(self, transitions):
        self.network(transitions.next_observation)
        return super().compute_loss(transitions)


@pytest.mark.parametrize("update_class", [DQNUpdate, NextObservationsFirst])
@EAGER_AND_GRAPH
def test_an_update_normalizes_with_statistics_that_hold_its_batch(run, update_class):
    networks = []
    for _ in range(2):
        normalization, linear = RunningNormalization([2]), make_linear(ONLINE)
        layers = snt.Sequential([normalization, linear])
        networks.append(ActionValueNetwork(layers, expected_value()))
    config = ApexDQNConfig(target_update_period=2)
    update = update_class(*networks, config)
    step = run(in_one(update))
    # The last state of an episode, whose value is not read.
    next_observation = tf.constant([[0.0, 1.0], [9.0, 5.0]])
    transitions = TRANSITIONS._replace(next_observation=next_observation)
    output = step(transitions, WEIGHTS)
    online, target = ([v.numpy().tolist() for v in network.variables] for network in networks)
    # (1, 0) and (0, 1) have a mean of 1/2, a variance of 1/4. The next observations do not count.
    assert online[:3] == [2, [0.5, 0.5], [0.25, 0.25]]
    assert target[:3] == [0, [0.0, 0.0], [1.0, 1.0]]
    # States are (1, -1) and (-1, 1) in the online network, and as they were in the target network.
    # Values of the next states are (2, 3) and (-2, -3), those of the target network (3, 5), (1, 2).
    td_errors = [0.5 + 0.9 * 5.0 - (1.0 - 3.0), -1.0 - (5.0 - 2.0)]
    np.testing.assert_allclose(output.priorities, np.abs(td_errors), rtol=1e-5)
    step(transitions, WEIGHTS)
    for online, target in zip(networks[0].variables, networks[1].variables, strict=True):
        np.testing.assert_array_equal(online, target)
    assert int(networks[1].variables[0]) == 4


def test_equal_seeds_and_batches_give_equal_parameters(make_fixed_batches, serve):
    first, second, other = [
        learn_from_fixed_batches(seed, make_fixed_batches, serve) for seed in (7, 7, 8)
    ]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def learn_from_fixed_batches(
    seed: int, make_fixed_batches: Callable, serve: Callable
) -> list[np.ndarray]:
    """Let a new learner take 20 steps and return its parameters."""
    config = ApexDQNConfig(
        torso="mlp",
        mlp_hidden_sizes=(16,),
        stream_hidden_size=16,
        frame_stack=0,
        batch_size=8,  # `make_fixed_batches` makes them this large.
        learning_rate=0.001,
        target_update_period=7,
        replay=ReplayConfig(max_size=100, min_size=1),
    )
    builder = ApexDQNBuilder(config)
    spec = make_vector_environment(EnvironmentConfig("toy", "catch"), 1, seed=0).spec
    client = serve(*builder.make_replay_tables(spec))
    builder.make_dataset = lambda *_: make_fixed_batches(spec, 20)
    learner = builder.make_learner(spec, client, seed)
    before = learner.get_variables(["network"])[0]
    for _ in range(20):
        learner.step()
    (after,) = learner.get_variables(["network"])
    learner.close()
    assert all(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    return after


@pytest.mark.parametrize("rate", [{"learning_rate": 0.1}, {"learning_rate_steps": 1}])
def test_quantiles_are_learned_by_their_own_loss_and_prioritized_by_the_error_of_their_means(rate):
    settings = {"learning_rate": 1.0, **rate}  # Or a tenth of it after one update.
    config = ApexDQNConfig(head="quantile", num_quantiles=2, optimizer="adam", **settings)
    networks = []
    # Quantiles of state s and action a are `[A, N]`, side by side in a row of the matrix.
    for rows in ([[0.0, 2.0, 1.0, 3.0], [3.0, 3.0, 4.0, 6.0]], [[0.0] * 4, [7.0, 7.0, 3.0, 5.0]]):
        linear = snt.Linear(4, with_bias=False)
        linear(tf.zeros([1, 2]))
        linear.w.assign(rows)
        layers = snt.Sequential([linear, snt.Reshape([2, 2])])
        networks.append((ActionValueNetwork(layers, quantiles(2)), linear, rows))
    (online, weights, values), (target, target_weights, target_values) = networks
    update = DQNUpdate(online, target, config)
    if config.learning_rate_steps:
        update.num_updates.assign(1)
    target_weights.w.assign(target_values)
    output = update_on_batch(update, TRANSITIONS, WEIGHTS)
    # Means are those of ONLINE and, in state 1, action 1, of TARGET.
    np.testing.assert_allclose(output.priorities, np.abs(TD_ERROR), rtol=1e-5)
    # Targets of row 1 are 0.5 + 0.9 * (3, 5) = (3.2, 5): estimates 0 and 2, all errors above 1.
    # Row 2: both are -1; estimates 4 and 6, errors -5 and -7.
    losses = [0.25 * (2.7 + 4.5) / 2 + 0.75 * (0.7 + 2.5) / 2, 0.75 * 4.5 + 0.25 * 6.5]
    assert float(output.metrics["loss"]) == pytest.approx((losses[0] + 0.5 * losses[1]) / 2)
    # Adam's first step is the learning rate in the direction of the gradient.
    steps = [[0.1, 0.1, 0.0, 0.0], [0.0, 0.0, -0.1, -0.1]]
    np.testing.assert_allclose(weights.w, np.add(values, steps), rtol=0.01, atol=1e-3)


@pytest.mark.parametrize(("epsilon", "used"), [(None, 0.01 / 2), (0.25, 0.25)])
def test_epsilon_of_adam_is_that_of_the_config_or_falls_with_the_batch(epsilon, used):
    config = ApexDQNConfig(optimizer="adam", learning_rate=0.1, adam_epsilon=epsilon, batch_size=2)
    network, target_network = make_linear(ONLINE), make_linear(TARGET)
    values = [ActionValueNetwork(layer, expected_value()) for layer in (network, target_network)]
    update = DQNUpdate(*values, config)
    target_network.w.assign(TARGET)
    update_on_batch(update, TRANSITIONS, 0.01 * WEIGHTS)  # Gradients of the size of epsilon.
    # In Adam's first step both of its means are those of the gradient.
    steps = [0.1 * 0.01 * g / (abs(0.01 * g) + used) for g in GRADIENTS]
    expected = [[1.0 - steps[0], 2.0], [3.0, 5.0 - steps[1]]]
    np.testing.assert_allclose(network.w, expected, rtol=1e-5)


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_losses_are_computed_in_bfloat16_where_asked_for_and_possible(
    is_asked, has_bfloat16, monkeypatch
):
    monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: has_bfloat16)
    seen = []

    class SeesPrecision(snt.Module):
        @precision.mixed_precision
        def __call__(self, observation: tf.Tensor) -> tf.Tensor:
            seen.append(observation.dtype)
            return observation

    def make_network(values: list[list[float]]) -> ActionValueNetwork:
        layers = snt.Sequential([SeesPrecision(), make_linear(values)])
        return ActionValueNetwork(layers, expected_value())

    update = DQNUpdate(make_network(ONLINE), make_network(TARGET), ApexDQNConfig(bfloat16=is_asked))
    update_on_batch(update, TRANSITIONS, WEIGHTS)
    assert set(seen) == {tf.bfloat16 if is_asked and has_bfloat16 else tf.float32}
