"""Tests of recurrent networks: their cores, inputs and states."""

from __future__ import annotations

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.environments import EnvironmentSpec
from apex_agents.networks import RunningNormalization
from apex_agents.r2d2.networks import make_network
from apex_agents.replay.sequences import Steps
from apex_agents.validation import check_config
from tests.r2d2.sequences import make_config

SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(3), None, None)
LENGTH, BATCH = 6, 4


def make_two_layers(spec, config):
    """Make a core of two layers; configs name it."""
    assert spec.actions.num_values == 3
    return snt.DeepRNN([snt.GRU(config.core_size), tf.nn.relu, snt.LSTM(2)])


def make_layer(spec, config):
    return snt.DeepRNN([snt.Linear(7), tf.nn.tanh])


def make_learned_state(spec, config):
    class Learned(snt.GRU):
        def initial_state(self, batch_size, **kwargs):
            if not hasattr(self, "start"):
                self.start = tf.Variable(tf.zeros([1, 5]))
            return tf.tile(self.start, [batch_size, 1])

    return Learned(5)


def make_integer_state(spec, config):
    class Counter(snt.RNNCore):
        def __call__(self, inputs, prev_state):
            return inputs, prev_state + 1

        def initial_state(self, batch_size, **kwargs):
            return tf.zeros([batch_size, 1], tf.int32)

    return Counter()


def make_no_core(spec, config):
    return snt.Linear(3)


SHARED = snt.GRU(5)


def make_shared_core(spec, config):
    return SHARED


def make_projected_layer(spec, config):
    return snt.LSTM(5, projection_size=3)


def make_doubled_layer(spec, config):
    class Doubled(snt.GRU):
        def __call__(self, inputs, prev_state):
            output, state = super().__call__(inputs, prev_state)
            return 2 * output, state

    return Doubled(5)


def make_core_of_one_row(spec, config):
    class OneRow(snt.GRU):
        def initial_state(self, batch_size, **kwargs):
            return tf.zeros([1, 5])

    return OneRow(5)


def make_core_with_three_axes(spec, config):
    class Deep(snt.GRU):
        def __call__(self, inputs, prev_state):
            output, state = super().__call__(inputs, prev_state)
            return output[:, tf.newaxis], state

    return Deep(5)


def make_core_that_raises(spec, config):
    class Broken(snt.GRU):
        def __call__(self, inputs, prev_state):
            return super().__call__(inputs[:, :0], prev_state[:, :2])

    return Broken(5)


def make_normalized_core(spec, config):
    class Normalized(snt.GRU):
        def __init__(self):
            super().__init__(5)
            self.normalization = RunningNormalization([3])

    return Normalized()


def make_failing_core(spec, config):
    return snt.LSTM(config.no_such_field)


def draw_steps() -> Steps:
    random = np.random.default_rng(0)
    return Steps(
        tf.constant(random.normal(size=[BATCH, LENGTH, 3]), tf.float32),
        tf.constant(random.integers(-1, 3, size=[BATCH, LENGTH]), tf.int32),
        tf.constant(random.normal(size=[BATCH, LENGTH]), tf.float32),
    )


CORES = {
    "lstm": [5, 5],
    "gru": [5],
    "none": [],
    f"{__name__}:make_projected_layer": [3, 5],
    f"{__name__}:make_doubled_layer": [5],
    f"{__name__}:make_two_layers": [5, 2, 2],
    f"{__name__}:make_layer": [],
}


@pytest.mark.parametrize("core", CORES)
def test_unrolling_equals_one_step_after_the_other(core):
    network, steps = make_network(make_config(core=core), SPEC), draw_steps()
    state = network.initial_state(BATCH)
    assert [part.shape[1] for part in state] == CORES[core]
    num_steps = tf.constant([6, 4, 0, 1])
    values, last_state = network.unroll(steps, state, num_steps)
    states = [state]
    for t in range(LENGTH):
        q_values, state = network(*[tensor[:, t] for tensor in steps], *state)
        states.append(state)
        for row in np.flatnonzero(num_steps > t):
            np.testing.assert_allclose(values[row, t], q_values[row], atol=1e-6)
    for row, length in enumerate(num_steps):
        for part, expected in zip(last_state, states[length], strict=True):
            np.testing.assert_allclose(part[row], expected[row], atol=1e-6)


def test_actions_may_be_of_any_integers():
    network, steps = make_network(make_config(), SPEC), draw_steps()  # int32.
    of_64_bits = steps._replace(previous_action=tf.cast(steps.previous_action, tf.int64))
    expected, found = [
        network.unroll(inputs, network.initial_state(BATCH))[0] for inputs in (steps, of_64_bits)
    ]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("field", ["previous_action_input", "previous_reward_input"])
def test_inputs_can_be_left_out(field):
    steps = draw_steps()
    changed = {
        "previous_action_input": steps._replace(previous_action=(steps.previous_action + 2) % 3),
        "previous_reward_input": steps._replace(reward=steps.reward + 1),
    }[field]
    for has_input in (True, False):
        network = make_network(make_config(**{field: has_input}), SPEC)
        before, after = [
            network.unroll(inputs, network.initial_state(BATCH))[0] for inputs in (steps, changed)
        ]
        assert np.allclose(before, after) != has_input


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("make_integer_state", ["agent.core", "int32", "float32"]),
        ("make_no_core", ["agent.core", "Linear", "snt.RNNCore"]),
        ("make_failing_core", ["agent.core", "AttributeError", "no_such_field"]),
        ("make_learned_state", ["agent.core", "learned", "constants"]),
        ("make_missing", ["agent.core", "make_missing"]),
        ("make_normalized_core", ["agent.core", "RunningNormalization", "in a torso only"]),
        ("make_shared_core", ["agent.core", "earlier call", "gru/"]),
        ("make_core_of_one_row", ["agent.core", "(1, 5)", "batch of 2"]),
        ("make_core_with_three_axes", ["agent.core", "(2, 1, 5)", "[B, G]"]),
        ("make_core_that_raises", ["agent.core", "InvalidArgumentError", "features (2, "]),
    ],
)
def test_a_core_that_cannot_be_used_is_refused(function, words):
    with pytest.raises(ValueError, match="core") as error:
        for _ in range(2):  # The online network and its target.
            make_network(make_config(core=f"{__name__}:{function}"), SPEC)
    assert all(word in str(error.value) for word in words)


def test_variables_have_different_names():
    names = [variable.name for variable in make_network(make_config(), SPEC).variables]
    assert len(names) == len(set(names))


def test_staleness_of_a_core_without_a_state_is_refused():
    config = make_config(core="none", measure_staleness=True)
    with pytest.raises(ValueError, match="measure_staleness is True; it has to be False without"):
        check_config(config)
