"""Tests of what agents see of observation spaces: specs and values, case by case."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments.conversion import convert_observations, describe_rounding, space_of

IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
VECTOR = spaces.Box(-1.0, 2.0, (2,), np.float64)


def observations(shape, dtype, minimum, maximum) -> specs.BoundedArray:
    return specs.BoundedArray(shape, dtype, minimum, maximum, name="observation")


BYTES = spaces.Box(0, 255, (2,), np.uint8)
WHOLE = spaces.Box(-5, 5, (2,), np.int16)
NEST = spaces.Dict({"a": VECTOR, "b": spaces.Tuple([BYTES, spaces.Discrete(3, start=2)])})
OPEN = spaces.Box(np.array([-1e300, 0.0]), np.array([2.0, 2.0]), dtype=np.float64)


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "bounds", "observation", "seen"),
    [
        (OPEN, (2,), np.float32, ([-np.inf, 0.0], 2.0), [0.5, 0.25], [0.5, 0.25]),
        (spaces.Box(0, 9, (), np.int64), (1,), np.float32, (0, 9), 7, [7.0]),
        (spaces.Box(0, 1, (1, 2)), (1, 2), np.float32, (0, 1), [[1, 1]], [[1.0, 1.0]]),
        (BYTES, (2,), np.uint8, (0, 255), [3, 255], [3, 255]),
        (IMAGE, (2, 3), np.uint8, (0, 255), [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]),
        (
            spaces.Box(0, 9, (1, 1, 2), np.uint8),
            (1, 1, 2),
            np.uint8,
            (0, 9),
            [[[8, 9]]],
            [[[8, 9]]],
        ),
        (spaces.Box(0, 1, (1, 2), bool), (1, 2), np.uint8, (0, 1), [[True, False]], [[1, 0]]),
        (spaces.Box(0, 1, (2,), bool), (2,), np.float32, (0, 1), [True, False], [1.0, 0.0]),
        (spaces.Discrete(3, start=5), (3,), np.float32, (0, 1), 5, [1.0, 0.0, 0.0]),
        (spaces.MultiDiscrete([2, 3]), (5,), np.float32, (0, 1), [1, 0], [0.0, 1.0, 1.0, 0.0, 0.0]),
        (spaces.MultiBinary(3), (3,), np.float32, (0, 1), [1, 0, 1], [1.0, 0.0, 1.0]),
        (spaces.MultiBinary([1, 2]), (2,), np.float32, (0, 1), [[1, 0]], [1.0, 0.0]),
        (  # In the order of the names, whatever the order of the dicts.
            *(spaces.Dict({"y": VECTOR, "x": spaces.Discrete(2)}), (4,), np.float32),
            *(([0, 0, -1, -1], [1, 1, 2, 2]), {"y": [0.5, 0.25], "x": 1}, [0.0, 1.0, 0.5, 0.25]),
        ),
        (
            *(spaces.Tuple([VECTOR, spaces.Discrete(2)]), (4,), np.float32),
            *(([-1, -1, 0, 0], [2, 2, 1, 1]), ([1, 2], 0), [1.0, 2.0, 1.0, 0.0]),
        ),
    ],
)
def test_observations(space, shape, dtype, bounds, observation, seen):
    spec, convert = convert_observations(space)
    assert spec == observations(shape, dtype, *bounds)
    converted = convert(observation)
    assert (converted.dtype, converted.tolist()) == (dtype, seen)
    with np.errstate(over="ignore"):
        spec.validate(convert(space.sample()))


def test_an_array_of_the_right_dtype_is_not_copied():
    _, convert = convert_observations(IMAGE)
    image = np.zeros((2, 3), np.uint8)
    assert np.shares_memory(convert(image), image)


def nest(vector: Any = (0.0, 1.0), numbers: Any = (3, 255), place: Any = 2) -> dict[str, Any]:
    return {"a": vector, "b": (numbers, place)}


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (IMAGE, np.full((2, 3), 256), "observation holds 256, its space is Box(0, 255, (2, 3), "),
        (IMAGE, np.full((2, 3), -1), "observation holds -1, its space is Box(0, 255, "),
        (IMAGE, np.full((2, 3), 0.5), "observation holds 0.5, its space is Box(0, 255, "),
        (IMAGE, np.full((2, 3), np.nan), "observation holds nan, its space is Box(0, 255, "),
        (IMAGE, np.zeros((3, 2), np.uint8), "observation has the shape (3, 2), its space (2, 3)"),
        (BYTES, [3, 300], "observation holds 300, its space is Box(0, 255, "),
        (WHOLE, [0, 40_000], "observation holds 40000, its space is Box(-5, 5, "),
        (spaces.Box(0, 9, (1,), np.uint64), [-3], "observation holds -3, its space is Box(0, 9, "),
        (spaces.Box(0, 1, (1, 2), bool), [[0, 2]], "observation holds 2, its space is Box(False, "),
        (spaces.MultiBinary(2), [0, 2], "observation holds 2, its space is MultiBinary(2)"),
        (spaces.MultiBinary(2), [0, 0.5], "observation holds 0.5, its space is MultiBinary(2)"),
        (spaces.MultiBinary(2), [1], "observation has the shape (1,), its space (2,)"),
        (spaces.Discrete(3), -1, "observation holds -1, its space is Discrete(3)"),
        (spaces.Discrete(3), 1.5, "observation holds 1.5, its space is Discrete(3)"),
        (spaces.Discrete(3), [1], "observation has the shape (1,), its space ()"),
        (spaces.Discrete(3), "left", "observation is 'left', its space is Discrete(3)"),
        (spaces.Discrete(3), None, "observation is None, its space is Discrete(3)"),
        (spaces.MultiDiscrete([3, 4]), [3, 0], "observation holds 3, its space is MultiDiscrete("),
        (spaces.MultiDiscrete([3, 4], start=[1, 0]), [0, 3], "observation holds 0, its space is "),
        (VECTOR, np.zeros(3), "observation has the shape (3,), its space (2,)"),
        (VECTOR, np.zeros((1, 2)), "observation has the shape (1, 2), its space (2,)"),
        (VECTOR, [[1.0], [2.0, 3.0]], "observation is [[1.0], [2.0, 3.0]], its space is Box("),
        (VECTOR, np.array([1.0, 2.0], object), "observation is array([1.0, 2... dtype=object), "),
        (VECTOR, np.array(["1", "2"]), "observation is array(['1', '2'], dtype='<U1'), its "),
        (VECTOR, [1j, 2j], "observation is [1j, 2j], its space is Box("),
        (NEST, nest(vector=np.zeros((2, 1))), "observation['a'] has the shape (2, 1), its space "),
        (NEST, nest(numbers=[3, 256]), "observation['b'][0] holds 256, its space is Box(0, 255, "),
        (NEST, nest(numbers=[0.5, 1.0]), "observation['b'][0] holds 0.5, its space is Box(0, 255"),
        (NEST, nest(place=5), "observation['b'][1] holds 5, its space is Discrete(3, start=2)"),
        (NEST, {"a": [0.0, 1.0]}, "observation has the parts ['a'], its space ['a', 'b']"),
        (NEST, nest() | {"c": 1}, "observation has the parts ['a', 'b', 'c'], its space ['a', "),
        (NEST, nest() | {"b": ([3, 255],)}, "observation['b'] has the parts [0], its space [0, 1]"),
        (NEST, nest() | {"b": 3}, "observation['b'] is 3, its space has the parts [0, 1]"),
        (NEST, [1.0, 2.0], "observation has the parts [0, 1], its space ['a', 'b']"),
    ],
)
def test_an_observation_that_its_space_does_not_contain_is_refused(space, observation, message):
    _, convert = convert_observations(space)
    with pytest.raises(ValueError) as caught:
        convert(observation)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("space", "observation", "seen"),
    [
        (BYTES, [3.0, 255.0], [3, 255]),
        (WHOLE, [-5.0, 6.0], [-5.0, 6.0]),  # A bound is not a limit.
        (VECTOR, [2.5, -7], [2.5, -7.0]),
        (spaces.MultiBinary(2), [True, False], [1.0, 0.0]),
        (spaces.Discrete(3, start=2), np.float32(3.0), [0.0, 1.0, 0.0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1.0, 0.0]), [0.0, 1.0, 1.0, 0.0, 0.0]),
        (spaces.MultiDiscrete([[2], [2]], start=[[1], [0]]), [[2], [0]], [0.0, 1.0, 1.0, 0.0]),
        (NEST, nest(place=4.0), [0.0, 1.0, 3.0, 255.0, 0.0, 0.0, 1.0]),
        (spaces.Tuple([spaces.Discrete(2)] * 2), np.array([0, 1]), [1.0, 0.0, 0.0, 1.0]),
    ],
)
def test_numbers_of_any_dtype_are_accepted(space, observation, seen):
    spec, convert = convert_observations(space)
    converted = convert(observation)
    assert (converted.dtype, converted.tolist()) == (spec.dtype, seen)


@pytest.mark.parametrize("seed", range(5))
def test_observations_are_flat_as_gymnasium_flattens_them(seed):
    space = spaces.Dict({"n": NEST, "m": spaces.MultiDiscrete([2, 3]), "b": spaces.MultiBinary(2)})
    space.seed(seed)
    observation = space.sample()
    _, convert = convert_observations(space)
    np.testing.assert_array_equal(
        convert(observation), np.float32(spaces.flatten(space, observation))
    )


def test_a_part_without_elements_is_left_out():
    empty = spaces.Box(-1, 1, (0,), np.float32)
    spec, convert = convert_observations(spaces.Dict({"a": VECTOR, "b": empty}))
    assert [part.shape for part in spec.parts] == [(2,)]
    assert convert({"a": [1.0, 2.0], "b": np.zeros(0)}).tolist() == [1.0, 2.0]


def test_images_among_other_parts():
    nested = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1, 2), np.bool_)])
    space = spaces.Dict({"b": VECTOR, "a": IMAGE, "c": nested})
    spec, convert = convert_observations(space)
    assert (spec.shape, spec.dtype) == ((12,), np.float32)
    assert spec.parts == [
        observations((2, 3), np.uint8, 0, 255),
        observations((2,), np.float32, -1, 2),
        observations((2,), np.float32, 0, 1),
        observations((1, 2), np.uint8, 0, 1),
    ]
    assert pickle.loads(pickle.dumps(spec)).parts == spec.parts
    image = np.array([[1, 2, 3], [4, 5, 255]])
    observed = {"b": np.array([0.5, 1]), "a": image, "c": (1, np.array([[True, False]]))}
    assert convert(observed).tolist() == [1, 2, 3, 4, 5, 255, 0.5, 1, 0, 1, 1, 0]
    with pytest.raises(ValueError, match=r"observation\['a'\] holds 256"):
        convert({**observed, "a": image + 1})


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Dict({"a": spaces.Tuple([VECTOR, spaces.Text(9)])}), "observation['a'][1]"),
        (spaces.Dict({"a": spaces.Text(9), "b": IMAGE}), "observation['a']"),
        (spaces.Dict({"v": VECTOR, "mission": spaces.Text(9)}), "observation['mission']"),
        (spaces.Sequence(VECTOR), "observation"),
        (spaces.Graph(VECTOR, None), "observation"),
    ],
)
def test_refused_observation_spaces(space, named):
    with pytest.raises(ValueError) as caught:
        convert_observations(space)
    assert str(caught.value).startswith(f"{named} is ")
    assert "environment.suite='function'" in str(caught.value)


@pytest.mark.parametrize(
    "space", [spaces.Box(0.0, 1.0, (3, 0)), spaces.Dict({"a": spaces.Box(0, 1, (0,))})]
)
def test_observations_without_an_element_are_refused(space):
    with pytest.raises(ValueError, match="the observation has no element"):
        convert_observations(space)


def test_bounds_that_are_no_numbers_are_refused():
    spec = specs.BoundedArray((2,), np.float32, [np.nan, -1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="nan"):
        space_of(spec, "observation")


def discrete(num_values: int) -> spaces.Discrete:
    return spaces.Discrete(num_values, dtype=np.int32)  # The dtype of `specs.DiscreteArray`.


@pytest.mark.parametrize(
    ("spec", "space"),
    [
        (specs.DiscreteArray(4), discrete(4)),
        (specs.BoundedArray((), np.int64, 2, 10**9), spaces.Box(2, 10**9, (), np.int64)),
        (specs.Array((2,), np.float64), spaces.Box(-np.inf, np.inf, (2,), np.float64)),
        (specs.Array((2, 3), np.uint8), IMAGE),
        (specs.Array((2, 3), bool), spaces.Box(0, 1, (2, 3), np.bool_)),
        (specs.BoundedArray((2,), np.float64, -1.0, 2.0), VECTOR),
        (
            collections.OrderedDict(y=specs.DiscreteArray(2), x=[specs.DiscreteArray(3)]),
            spaces.Dict({"x": spaces.Tuple([discrete(3)]), "y": discrete(2)}),
        ),
    ],
    ids=["discrete", "integer", "array", "bytes", "bool", "bounded", "nest"],
)
def test_spaces_of_specs(spec, space):
    assert space_of(spec, "observation") == space


def test_an_action_that_is_a_bounded_number_is_discrete():
    assert space_of(specs.BoundedArray((), np.int64, 2, 4), "action") == spaces.Discrete(3, start=2)


@pytest.mark.parametrize("spec", [specs.StringArray(()), 3, None])
def test_specs_that_are_no_numbers_are_refused(spec):
    with pytest.raises(ValueError, match=r"observation\['x'\] is "):
        space_of({"x": spec}, "observation")


LARGE = 2**24 + 1


@pytest.mark.parametrize(
    ("space", "observation", "named"),
    [
        (spaces.Box(0, LARGE, (2,), np.int64), [0, 0], ["observation may hold 16777217", " 2."]),
        (
            spaces.Dict({"a": spaces.Box(-(10**9), 5, (2,), np.int64)}),
            {"a": [0, 0]},
            ["observation['a'] may hold -1000000000", " 64."],
        ),
        (
            spaces.Box(-np.inf, np.inf, (2,), np.float64),
            [1_700_000_050.0, 0.0],
            ["the first observation holds 1700000000", " 128."],
        ),
        # Only what it observes tells: these are the limits of the dtype.
        (spaces.Box(0, 2**63 - 1, (1,), np.int64), [-(2**31)], ["first observation holds 2147"]),
        (spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64), [2**24], []),
        (spaces.Box(0, 2**24, (1,), np.int32), [2**24], []),
        (spaces.Box(-1e30, 1e30, (1,), np.float64), [0.0], []),
        (spaces.Box(0, 255, (2, 2, 1), np.uint8), np.full((2, 2, 1), 255), []),
        (spaces.Discrete(5, start=LARGE), LARGE + 1, []),
    ],
)
def test_numbers_that_agents_cannot_tell_apart_are_named(space, observation, named):
    spec, convert = convert_observations(space)
    told = describe_rounding(spec, convert(observation))
    assert bool(told) == bool(named)
    assert all(text in told for text in named)
