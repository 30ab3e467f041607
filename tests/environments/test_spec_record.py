"""Tests of what a run records of its environment's spec."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from apex_agents.environments import EnvironmentSpec, find_spec_difference, record_spec
from apex_agents.environments.actions import convert_actions
from apex_agents.environments.conversion import convert_observations

LEFT_RIGHT = spaces.Discrete(2)


def vector(size: int, high: float = np.inf) -> spaces.Box:
    return spaces.Box(-np.inf, high, (size,), np.float64)


def image(high: int = 255, width: int = 10) -> spaces.Box:
    return spaces.Box(0, high, (100 // width, width), np.uint8)


def box(high: float) -> spaces.Box:
    return spaces.Box(np.array([0.0, -1.0]), np.array([high, 10.0]), dtype=np.float64)


def record(observations: Any, actions: Any = LEFT_RIGHT) -> Any:
    spec = EnvironmentSpec(
        convert_observations(observations)[0], convert_actions(actions), None, None
    )
    return json.loads(json.dumps(record_spec(spec)))  # It is written and read so.


@pytest.mark.parametrize(
    ("before", "now", "name"),
    [
        (record(vector(4)), record(vector(5)), "observations"),
        (record(image()), record(image(high=1)), "observations"),
        (
            record(spaces.Dict(p=vector(2), q=vector(3))),
            record(spaces.Dict(p=vector(3), q=vector(2))),
            "observations",
        ),
        (
            record(spaces.Dict([("p", vector(2)), ("q", vector(2))])),
            record(spaces.Dict([("q", vector(2)), ("p", vector(2))])),
            "observations",
        ),
        (
            record(spaces.Dict(p=image(), q=vector(3))),
            record(spaces.Dict(p=image(high=1), q=vector(3))),
            "observations",
        ),
        (
            record(spaces.Tuple([image(), vector(3)])),
            record(spaces.Tuple([image(width=25), vector(3)])),
            "observations",
        ),
        (record(vector(4)), record(vector(4), spaces.Discrete(3)), "actions"),
        (record(vector(4)), record(vector(4), spaces.Discrete(2, start=1)), "actions"),
        (record(vector(4), box(3.0)), record(vector(4), box(300.0)), "actions"),
        (record(vector(4), box(3.0)), record(vector(4)), "actions"),
    ],
)
def test_what_networks_depend_on_differs(before, now, name):
    assert find_spec_difference(before, before) is None
    found, old, new = find_spec_difference(before, now)
    assert found == name
    assert old != new


def test_what_networks_do_not_depend_on_does_not_differ():
    before = record(spaces.Dict(p=vector(2), q=vector(3)))
    assert find_spec_difference(before, record(spaces.Dict(p=vector(2, 9.0), q=vector(3)))) is None
    assert find_spec_difference({}, before) is None  # An older version has recorded nothing,
    older = {"observations": {"dtype": "float32", "shape": [5]}, "actions": {"num_values": 2}}
    assert find_spec_difference(older, before) is None  # or less.
