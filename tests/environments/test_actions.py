"""Tests of actions: those of agents, those of environments, and both ways between them."""

from __future__ import annotations

import pickle

import dm_env
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments import EnvironmentUnits, SyncVectorEnvironment
from apex_agents.environments.actions import convert_actions


def test_scaled_actions_stay_within_bounds():
    box = spaces.Box(np.float32([0.1]), np.float32([0.3]))
    spec = convert_actions(box)
    for action in np.linspace(-1, 1, 101, dtype=np.float32):
        assert box.contains(spec.to_environment(np.array([action])))


def test_an_action_of_one_value_has_it_whatever_the_agent_says():
    spec = convert_actions(spaces.Box(np.float32([-2, 1]), np.float32([2, 1])))
    assert (spec.minimum.tolist(), spec.maximum.tolist()) == (-1.0, 1.0)
    assert spec.to_environment(np.float32([0.5, -0.7])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("box", "action"),
    [
        (spaces.Box(-np.inf, np.inf, (2,), np.float32), [-7.5, 100.0]),
        (spaces.Box(np.float32([-2, 0]), np.float32([2, np.inf])), [-2.0, 100.0]),
        (spaces.Box(-5, 5, (2,), np.int32), [-5, 4]),
        (spaces.Box(0, 255, (2,), np.uint8), [0, 254]),
    ],
    ids=["unbounded", "half_bounded", "int32", "uint8"],
)
def test_actions_of_other_boxes_are_not_scaled(box, action):
    spec = convert_actions(box)
    assert (spec.shape, spec.dtype) == (box.shape, box.dtype)
    assert np.broadcast_to(spec.minimum, 2).tolist() == box.low.tolist()
    assert np.broadcast_to(spec.maximum, 2).tolist() == box.high.tolist()
    converted = spec.to_environment(np.array(action, spec.dtype))
    assert (converted.dtype, converted.tolist()) == (box.dtype, action)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Box(-1, 1, (2,))}),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))]),
        spaces.Tuple([]),
        spaces.MultiDiscrete([7, 11, 13]),  # 1,001 combinations.
        spaces.MultiBinary(10),
    ],
)
def test_refused_action_spaces(space):
    with pytest.raises(ValueError) as caught:
        convert_actions(space)
    assert str(caught.value).startswith(f"actions are {space}")
    assert "environment.suite='function'" in str(caught.value)


BOX = spaces.Box(np.float64([0, -1]), np.float64([3, 10]), dtype=np.float64)
SMALL_BOX = spaces.Box(np.float32([-1, 0]), np.float32([3, 10]))
DISCRETE = specs.DiscreteArray(3, np.int32, name="action")
UNIT_BOX = specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")


@pytest.mark.parametrize(
    ("space", "expected", "of_agent", "of_environment"),
    [
        (spaces.Discrete(3, start=5, dtype=np.int16), DISCRETE, [0, 2, 1], [5, 7, 6]),
        (BOX, UNIT_BOX, [[-1, -1], [0, 0], [1, 0.5]], [[0, -1], [1.5, 4.5], [3, 7.25]]),
        (SMALL_BOX, UNIT_BOX, [[-1, -1], [0, 0.5]], [[-1, 0], [1, 7.5]]),
    ],
    ids=["discrete", "float64", "float32"],
)
def test_actions_are_converted_in_both_directions(space, expected, of_agent, of_environment):
    spec = convert_actions(space)
    assert spec == expected
    for agents, environments in ((of_agent, of_environment), (of_agent[0], of_environment[0])):
        converted = spec.to_environment(np.array(agents, spec.dtype))
        assert (converted.dtype, converted.tolist()) == (space.dtype, environments)
        back = spec.to_agent(converted)
        assert (back.dtype, back.tolist()) == (spec.dtype, agents)


def test_a_spec_keeps_its_space_in_another_process():
    for space in (spaces.Discrete(3, start=5), BOX):
        assert pickle.loads(pickle.dumps(convert_actions(space))).space == space


def test_units_of_environments():
    discrete, box = (
        convert_actions(s).environment_spec for s in (spaces.Discrete(3, start=5), BOX)
    )
    assert discrete == specs.BoundedArray((), np.int64, 5, 7)
    assert box == specs.BoundedArray((2,), np.float64, [0, -1], [3, 10])


class Recorder(dm_env.Environment):
    """Keeps the actions of agents that it gets."""

    def __init__(self, space):
        self.space, self.actions = space, []

    def reset(self):
        return dm_env.restart(np.zeros(1, np.float32))

    def step(self, action):
        self.actions.append(np.asarray(action).tolist())
        return dm_env.transition(0.0, np.zeros(1, np.float32))

    def observation_spec(self):
        return specs.Array((1,), np.float32)

    def action_spec(self):
        return convert_actions(self.space)


@pytest.mark.parametrize(
    ("space", "given", "agents"),
    [(spaces.Discrete(3, start=5), [5, 7], [0, 2]), (BOX, [[3, -1], [0, 4.5]], [[1, -1], [-1, 0]])],
)
def test_environments_that_are_stepped_in_their_own_units(space, given, agents):
    recorders = [Recorder(space), Recorder(space)]
    environment = EnvironmentUnits(SyncVectorEnvironment(recorders))
    assert environment.spec.actions == convert_actions(space).environment_spec
    environment.reset()
    environment.step(np.array(given))
    assert [one.actions for one in recorders] == [[action] for action in agents]
    assert environment.num_envs == 2


PAIR = spaces.MultiDiscrete([2, 3], start=[0, 5])
TRIPLE = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(4, start=1), spaces.Discrete(2)])


@pytest.mark.parametrize(
    ("space", "number", "own"),
    [
        (PAIR, 4, [1, 6]),
        (TRIPLE, 23, (2, 4, 1)),
        (spaces.MultiDiscrete([[2], [3]], dtype=np.int32), 5, [[1], [2]]),
        (spaces.MultiBinary(3), 6, [1, 1, 0]),
        (spaces.MultiDiscrete([10, 10, 10]), 999, [9, 9, 9]),
    ],
)
def test_combinations_are_counted_with_the_last_action_fastest(space, number, own):
    actions = convert_actions(space)
    converted = actions.to_environment(np.int32(number))
    assert space.contains(converted)
    assert np.array_equal(converted, own)
    assert int(actions.to_agent(own)) == number
    everything = np.arange(actions.num_values)
    batch = actions.to_environment(everything)
    assert len({*map(str, batch.tolist())}) == actions.num_values
    assert actions.to_agent(batch).tolist() == everything.tolist()
    bounds = actions.environment_spec
    assert np.array_equal(batch.min(axis=0), bounds.minimum)
    assert np.array_equal(batch.max(axis=0), bounds.maximum)
    assert pickle.loads(pickle.dumps(actions)) == actions


@pytest.mark.parametrize(
    ("space", "mask", "legal"),
    [
        (spaces.Discrete(3, start=7), np.array([0, 1, 1], np.int8), [0, 1, 1]),
        (spaces.Discrete(2), [True, False], [1, 0]),
        (PAIR, [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0]),
        (PAIR, [[0, 0, 1], [1, 0, 0]], [0, 0, 1, 1, 0, 0]),
        (PAIR, (np.array([0, 1]), np.array([1, 0, 1])), [0, 0, 0, 1, 0, 1]),
        (spaces.MultiDiscrete([2, 2]), [1, 0, 0, 1], [1, 0, 0, 1]),
        (spaces.MultiDiscrete([2, 2]), ([0, 1], [1, 0]), [0, 0, 1, 0]),
    ],
)
def test_masks(space, mask, legal):
    found = convert_actions(space).to_mask(mask)
    assert (found.dtype, found.tolist()) == (bool, [bool(number) for number in legal])


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (spaces.Discrete(3), [0, 1]),
        (spaces.Discrete(3), [0, 1, 2]),
        (spaces.Discrete(3), [0, 0.5, 1]),
        (spaces.Discrete(3), None),
        (spaces.Discrete(3), ["a", "b", "c"]),
        (PAIR, [0, 1, 1]),
        (PAIR, ([0, 1], [1, 0])),
        (PAIR, ([0, 1], [1, 0, 2])),
        (PAIR, [[0, 1], [1, 0, 1]]),
    ],
)
def test_what_is_no_mask_is_refused(space, mask):
    with pytest.raises(ValueError, match=r"mask of legal actions is .* it has to hold a 0 or a 1"):
        convert_actions(space).to_mask(mask)
