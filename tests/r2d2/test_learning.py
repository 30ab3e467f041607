"""Tests of R2D2's update against a loop over the steps of each sequence."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from dm_env import specs

from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.r2d2.config import R2D2Config
from apex_agents.r2d2.learning import R2D2Update
from apex_agents.r2d2.networks import RecurrentNetwork
from tests.r2d2.sequences import make_config

GAMMA, NUM_STEPS, ETA, EPSILON = 0.9, 2, 0.9, 1e-3
SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(3), None, None)


class Case(NamedTuple):
    """Steps of an item, and the discount of its last one."""

    burn_in: int
    trained: int
    following: int
    last_discount: float = 1.0


CASES = {
    "whole": Case(4, 8, 2),
    "first block, which has no burn-in": Case(0, 8, 2),
    "second block, which has a part of it": Case(3, 8, 2),
    "terminated within the block": Case(4, 5, 1, 0.0),
    "truncated within the block": Case(4, 5, 1),
    "terminated behind the block": Case(4, 8, 1, 0.0),
    "truncated behind the block": Case(4, 8, 1),
    "an episode of one step": Case(0, 1, 1, 0.0),
}


def make_rows(case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw the steps of an item."""
    length = case.burn_in + case.trained + case.following
    previous_action = random.integers(3, size=length)
    if not case.burn_in:
        previous_action[0] = -1
    discount = np.ones(length)
    discount[-1] = case.last_discount
    return {
        "observation": random.normal(size=(length, 3)).astype(np.float32),
        "previous_action": previous_action.astype(np.int32),
        "reward": (3 * random.normal(size=length)).astype(np.float32),
        "discount": discount.astype(np.float32),
        "state": random.normal(size=10).astype(np.float32),
    }


def make_batch(builder: R2D2Builder, items: list[tuple[Case, dict[str, np.ndarray]]]) -> Any:
    """Write items as columns, padded with zeros, and unpack them."""
    layout = builder.make_layout(SPEC)
    heads, columns = [], []
    for case, rows in items:
        length = len(rows["reward"])
        heads.append([length, case.burn_in, case.trained, *rows["state"]])
        numbers = [rows["observation"].T, rows["previous_action"], rows["reward"], rows["discount"]]
        column = np.zeros(layout.padded_shapes["steps"], np.float32)
        column[:length] = np.vstack([*numbers, np.full(length, 7.0)]).T
        columns.append(column)
    return layout.unpack({"head": tf.constant(heads, tf.float32), "steps": tf.constant(columns)})


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + EPSILON * x


def inverse_h(x: float) -> float:
    root = math.sqrt(1 + 4 * EPSILON * (abs(x) + 1 + EPSILON))
    return math.copysign(((root - 1) / (2 * EPSILON)) ** 2 - 1, x)


def unroll(network: RecurrentNetwork, case: Case, rows: dict[str, np.ndarray]) -> list[tf.Tensor]:
    """Evaluate all steps but those of the burn-in, one by one."""
    state = tuple(tf.constant(part[np.newaxis]) for part in np.split(rows["state"], 2))
    values = []
    for t in range(len(rows["reward"])):
        if t == case.burn_in:
            state = tuple(map(tf.stop_gradient, state))
        names = ("observation", "previous_action", "reward")
        inputs = [tf.constant(rows[name][np.newaxis, t]) for name in names]
        q_values, state = network(*inputs, *state)
        values.append(q_values[0])
    return values[case.burn_in :]


def compute_by_hand(
    update: R2D2Update, case: Case, rows: dict[str, np.ndarray]
) -> tuple[tf.Tensor, float]:
    """Return the loss and the priority of one sequence."""
    online = unroll(update.network, case, rows)
    target = [q_values.numpy() for q_values in unroll(update.target_network, case, rows)]
    errors = []
    for start in range(case.trained):
        t, n_step_return, n_step_discount = start, 0.0, 1.0
        while t < start + NUM_STEPS and t + 1 < len(online):
            t += 1
            n_step_return += n_step_discount * rows["reward"][case.burn_in + t]
            n_step_discount *= GAMMA * rows["discount"][case.burn_in + t]
        best = int(np.argmax(online[t]))
        goal = h(n_step_return + n_step_discount * inverse_h(float(target[t][best])))
        action = rows["previous_action"][case.burn_in + start + 1]
        errors.append(goal - online[start][action])
    sizes = [abs(float(error)) for error in errors]
    loss = tf.add_n([0.5 * error**2 for error in errors]) / len(errors)
    return loss, ETA * max(sizes) + (1 - ETA) * sum(sizes) / len(sizes)


def make_update(config: R2D2Config) -> tuple[R2D2Builder, R2D2Update]:
    """Make an update whose target network has weights of its own."""
    builder = R2D2Builder(config)
    update, target = builder.make_update(SPEC, seed=1), builder.make_networks(SPEC, seed=2)
    assert isinstance(update, R2D2Update)
    for variable, other in zip(update.target_network.variables, target.variables, strict=True):
        variable.assign(other)
    return builder, update


def test_update_equals_a_loop_over_the_steps():
    builder, update = make_update(make_config())
    random = np.random.default_rng(1)
    items = [(case, make_rows(case, random)) for case in CASES.values()]
    weights = random.uniform(0.5, 1.0, len(items)).astype(np.float32)
    computed = update.compute(make_batch(builder, items), tf.constant(weights))
    with tf.GradientTape() as tape:
        results = [compute_by_hand(update, case, rows) for case, rows in items]
        mean = tf.add_n([w * loss for w, (loss, _) in zip(weights, results, strict=True)])
        mean /= len(items)
    np.testing.assert_allclose(computed.metrics["loss"], mean, rtol=1e-4)
    np.testing.assert_allclose(computed.priorities, [p for _, p in results], rtol=1e-4)
    expected = tape.gradient(mean, update.trained)
    for gradient, by_hand in zip(computed.gradients, expected, strict=True):
        scale = np.abs(by_hand).max()
        np.testing.assert_allclose(gradient, by_hand, rtol=1e-3, atol=1e-4 * scale)


def test_statistics_are_those_of_the_real_steps():
    builder, update = make_update(make_config(normalize_observations=True))
    random = np.random.default_rng(3)
    items = [(case, make_rows(case, random)) for case in CASES.values()]
    update.compute(make_batch(builder, items), tf.ones(len(items)))
    seen = np.concatenate([rows["observation"][case.burn_in :] for case, rows in items])
    modules = update.network.submodules
    (statistics,) = [module for module in modules if isinstance(module, RunningNormalization)]
    assert statistics.count == len(seen)
    np.testing.assert_allclose(statistics.mean, seen.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(statistics.variance, seen.var(axis=0), rtol=1e-5)


def test_state_holds_all_that_the_next_updates_depend_on(tmp_path):
    config = make_config(target_update_period=3, normalize_observations=True)
    builder, update = make_update(config)
    random = np.random.default_rng(2)
    items = [(case, make_rows(case, random)) for case in CASES.values()]
    batch, weights = make_batch(builder, items), tf.ones(len(items))

    def do_two(update: R2D2Update) -> list[np.ndarray]:
        for _ in range(2):  # The second one copies the parameters.
            update.apply(update.compute(batch, weights).gradients)
        networks = update.network, update.target_network
        return [variable.numpy() for network in networks for variable in network.variables]

    update.apply(update.compute(batch, weights).gradients)
    path = tf.train.Checkpoint(**update.state).write(str(tmp_path / "state"))
    expected = do_two(update)
    _, restored = make_update(config)
    tf.train.Checkpoint(**restored.state).read(path).assert_consumed()
    for found, array in zip(do_two(restored), expected, strict=True):
        np.testing.assert_array_equal(found, array)


def test_the_learner_starts_after_as_many_steps_as_its_sequences_have():
    flow = R2D2Builder(make_config()).data_flow(num_envs_per_actor=8)
    # Episodes of one step make an item each, long ones one every 4 steps.
    assert (flow.min_size, flow.min_steps, flow.usual_min_steps) == (1, 1, 4)
