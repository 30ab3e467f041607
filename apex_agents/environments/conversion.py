"""What agents see of spaces: observations as one array, actions as numbers or in [-1, 1].

Spaces are gymnasium's; `space_of` turns specs of dm_env into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

ObservationConverter = Callable[[Any], np.ndarray]
ActionConverter = Callable[[Any], Any]


_VECTORS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def convert_observations(space: spaces.Space) -> tuple[specs.BoundedArray, ObservationConverter]:
    """Return the spec of what agents observe, and the function that makes it of an observation.

    Images, boxes of uint8 or bool with two axes or more, are uint8 with the maximum of their space,
    1 for bool; vectors of uint8 are uint8, too. Every other box is float32 in its own shape, a
    number has the shape [1]. A discrete space becomes a one-hot float32 vector. Dicts and tuples of
    all these but images become one float32 vector, flattened in the order of `spaces.Dict.spaces`,
    which sorts by name what it gets as a dict.

    Raises:
      ValueError: the space holds something else, nothing, or an image among other parts.
    """
    if isinstance(space, spaces.Box):
        return _convert_box(space)
    parts = dict(_parts(space, "observation"))
    for path in filter(lambda path: is_image(parts[path]), parts):
        raise ValueError(
            f"{path} is an image among other parts. Agents observe one image or vectors: let "
            "gymnasium.wrappers.TransformObservation return one of them, or FlattenObservation all "
            "of them, for a torso of yours that takes them apart, in a function that "
            "environment.suite='function' names."
        )
    for path in filter(lambda path: not isinstance(parts[path], _VECTORS), parts):
        raise ValueError(
            f"{path} is a {type(parts[path]).__name__} space. Agents observe numbers, always as "
            "many: let a wrapper such as gymnasium.wrappers.TransformObservation leave it out, in "
            "a function that environment.suite='function' names."
        )
    box: Any = spaces.flatten_space(space)
    spec = _make_spec(box.low, box.high, np.float32)

    def convert(observation: Any) -> np.ndarray:
        _check_values(space, observation, "observation")
        return np.asarray(spaces.flatten(space, observation), np.float32)

    return spec, convert


def convert_actions(space: spaces.Space) -> tuple[specs.BoundedArray, ActionConverter]:
    """Return the spec of an agent's actions, and the function that makes an action of the space.

    Discrete actions are int32 and start at 0. Those of a bounded box of floats are float32 in
    [-1, 1] and scaled to its bounds. Other boxes stay as they are: agents refuse them.

    Raises:
      ValueError: the space is neither discrete nor a box.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        spec = specs.DiscreteArray(int(space.n), dtype=np.int32, name="action")
        return spec, lambda action: space.dtype.type(int(action) + start)
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"actions are {space}; agents need Discrete actions (Ape-X DQN) or a Box (Ape-X DPG). "
            "Let a gymnasium.ActionWrapper number the combinations, in a function that "
            "environment.suite='function' names."
        )
    low, high, dtype = space.low, space.high, space.dtype
    if not np.issubdtype(dtype, np.floating):
        spec = specs.BoundedArray(space.shape, dtype, low, high, name="action")
        return spec, lambda action: np.asarray(action, dtype)
    if not space.is_bounded():
        return _make_spec(low, high, np.float32, "action"), lambda action: np.asarray(action, dtype)
    spec = specs.BoundedArray(space.shape, np.float32, -1.0, 1.0, name="action")
    middle, radius = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0

    def scale(action: Any) -> np.ndarray:
        scaled = middle + radius * np.asarray(action, np.float64)
        return np.clip(scaled, low, high).astype(dtype)

    return spec, scale


def to_number(value: Any, name: str) -> float:
    """Return a reward or a discount as a float.

    Raises:
      ValueError: it is no number, such as None, a text or an array of several numbers.
    """
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "fiub":
        return float(array.item())
    raise ValueError(f"the {name} is {value!r}; it has to be a number")


def is_image(space: spaces.Space) -> bool:
    """Return whether observations of a space are images: uint8 or bool, with two axes or more."""
    is_box = isinstance(space, spaces.Box) and len(space.shape) > 1
    return is_box and space.dtype in (np.uint8, np.bool_)


def space_of(spec: Any, name: str) -> spaces.Space:
    """Return the space of a spec of dm_env, or of a nest of them.

    Args:
      spec: a spec, or dicts, lists and tuples of specs.
      name: name of the spec, for messages.

    Raises:
      ValueError: a spec is not one of arrays of numbers, or its bounds are no interval.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict({key: space_of(part, f"{name}[{key!r}]") for key, part in spec.items()})
    if isinstance(spec, (list, tuple)):
        return spaces.Tuple([space_of(part, f"{name}[{i}]") for i, part in enumerate(spec)])
    if not isinstance(spec, specs.Array) or spec.dtype.kind not in "fiub":
        raise ValueError(f"{name} is {spec!r}; agents need arrays of numbers.")
    if spec.dtype.kind == "f":
        bounds = (-np.inf, np.inf)
    else:
        bounds = (0, 1) if spec.dtype.kind == "b" else _range_of(spec.dtype)
    low = np.broadcast_to(getattr(spec, "minimum", bounds[0]), spec.shape)
    high = np.broadcast_to(getattr(spec, "maximum", bounds[1]), spec.shape)
    # A bounded number that is observed may have any range, and is a place on a line.
    kinds = specs.BoundedArray if name == "action" else specs.DiscreteArray
    if spec.shape == () and spec.dtype.kind in "iu" and isinstance(spec, kinds):
        return spaces.Discrete(int(high) - int(low) + 1, start=int(low))
    return spaces.Box(low, high, spec.shape, spec.dtype)


def _convert_box(space: spaces.Box) -> tuple[specs.BoundedArray, ObservationConverter]:
    is_bytes = is_image(space) or space.dtype == np.uint8
    dtype = np.dtype(np.uint8 if is_bytes else np.float32)
    spec = _make_spec(space.low, space.high, dtype)

    def convert(observation: Any) -> np.ndarray:
        array = np.asarray(observation)
        if array.shape != space.shape:
            raise ValueError(f"an observation has the shape {array.shape}, its space {space.shape}")
        if is_bytes and array.dtype.kind == "f":  # Fractions would become 0.
            raise ValueError(f"an observation is {array.dtype}, its space {space.dtype}")
        return array.astype(dtype, copy=False).reshape(spec.shape)

    return spec, convert


def _check_values(space: spaces.Space, observation: Any, path: str) -> None:
    """Raise a ValueError if a part of an observation would be read as another one.

    Boxes may have another shape or lose their fractions, numbers may be outside of their range.
    """
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            _check_values(part, observation[key], f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, (part, value) in enumerate(zip(space.spaces, observation, strict=True)):
            _check_values(part, value, f"{path}[{index}]")
    elif isinstance(space, spaces.Box):
        array = np.asarray(observation)
        if array.shape != space.shape:
            raise ValueError(f"{path} has the shape {array.shape}, its space {space.shape}")
        is_rounded = space.dtype.kind in "uib" and array.dtype.kind == "f"
        if is_rounded and np.any(array != np.trunc(array)):
            raise ValueError(f"{path} is {array.dtype} with fractions, its space {space.dtype}")
    elif isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        place = np.asarray(observation) - space.start
        limit = space.n if isinstance(space, spaces.Discrete) else space.nvec
        if np.any(place < 0) or np.any(place >= limit):
            raise ValueError(f"{path} is {observation}, its space {space}")


def _make_spec(low: Any, high: Any, dtype: Any, name: str = "observation") -> specs.BoundedArray:
    with np.errstate(over="ignore"):  # A bound beyond float32's range becomes infinite.
        low, high = (np.atleast_1d(bound).astype(dtype) for bound in (low, high))
    if not low.size:
        raise ValueError(
            f"the {name} has no element, its shape is {low.shape}; let it be a constant."
        )
    bounds = [b.flat[0] if np.all(b == b.flat[0]) else b for b in (low, high)]
    return specs.BoundedArray(low.shape, dtype, *bounds, name=name)


def _parts(space: spaces.Space, path: str) -> Iterator[tuple[str, spaces.Space]]:
    """Yield the parts of a space that are neither dicts nor tuples, and how one reaches them."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _parts(part, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _parts(part, f"{path}[{index}]")
    else:
        yield path, space


def _range_of(dtype: np.dtype) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
