"""Conversion of observation spaces to the one array that agents observe.

Spaces are gymnasium's; `space_of` turns specs of dm_env into them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

ObservationConverter = Callable[[Any], np.ndarray]


class ObservationSpec(specs.BoundedArray):
    """Spec of the observations of agents.

    Attributes:
      space: space of the environment's own observations.
      parts: specs of the parts of a Dict or a Tuple, in their order in the vector; images among
        them are uint8.
      name: how one reaches the part, such as "observation['a'][0]"; 'observation' for all.
    """

    def __init__(  # noqa: PLR0913
        self,
        shape: Any,
        dtype: Any,
        minimum: Any,
        maximum: Any,
        space: spaces.Space,
        parts: Sequence[ObservationSpec] = (),
        name: str = "observation",
    ):
        super().__init__(shape, dtype, minimum, maximum, name)
        self.space, self.parts = space, parts

    def __reduce__(self) -> Any:
        return ObservationSpec, tuple(self._get_constructor_kwargs().values())


_MAX_EXACT = 2**24  # Up to here float32 has all whole numbers.
_NUMBERS = "fiub"  # Kinds of dtypes.
_VECTORS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def convert_observations(space: spaces.Space) -> tuple[ObservationSpec, ObservationConverter]:
    """Return the spec of agents' observations, and the function that converts one.

    Images, boxes of uint8 or bool with two axes or more, are uint8 with the maximum of their space,
    1 for bool; vectors of uint8 are uint8, too. Every other box is float32 in its own shape, a
    number has the shape [1]. A discrete space becomes a one-hot float32 vector. Dicts and tuples of
    all these become one float32 vector, flattened in the order of `spaces.Dict.spaces`, which sorts
    a plain dict by name.

    Raises:
      ValueError: the space holds something else, or nothing.
    """
    if isinstance(space, spaces.Box):
        spec = _make_spec(space, space, _dtype_of(space))
        read = _make_reader(space, "observation")
        return spec, lambda observation: read(observation).reshape(spec.shape)
    parts = dict(_parts(space, "observation"))
    for path in filter(lambda path: not isinstance(parts[path], _VECTORS), parts):
        raise ValueError(
            f"{path} is a {type(parts[path]).__name__} space. Agents observe numbers, always as "
            "many: let a wrapper leave it out, such as gymnasium.wrappers.FilterObservation for a "
            "part of a Dict or TransformObservation, in a function that "
            "environment.suite='function' names."
        )
    is_nested = isinstance(space, (spaces.Dict, spaces.Tuple))
    flat_spaces = {
        path: part if is_image(part) else spaces.flatten_space(part)
        for path, part in (parts.items() if is_nested else ())
        if spaces.flatdim(part)
    }
    specs_of_parts = [
        _make_spec(parts[path], flat, np.uint8 if is_image(parts[path]) else np.float32, (), path)
        for path, flat in flat_spaces.items()
    ]
    spec = _make_spec(space, spaces.flatten_space(space), np.float32, specs_of_parts)
    return spec, _make_reader(space, "observation")


def to_number(value: Any, name: str) -> float:
    """Return a reward or a discount as a float.

    Raises:
      ValueError: it is no number, such as None, a text or an array of several numbers.
    """
    if isinstance(value, (float, int)):  # Nearly always, and an array would take longer.
        return float(value)
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in _NUMBERS:
        return float(array.item())
    raise ValueError(f"the {name} is {value!r}; it has to be a number")


def describe_rounding(spec: specs.Array, observation: np.ndarray) -> str:
    """Describe numbers of an environment that agents cannot tell apart, '' if none is known.

    Args:
      spec: spec of agents' observations.
      observation: the first observation.
    """
    is_own = isinstance(spec, ObservationSpec)
    parts = [*_parts(spec.space, "observation")] if is_own else []
    allowed = [
        (f"{path} may hold", int(bound))
        for path, part in parts
        if isinstance(part, spaces.Box) and part.dtype.kind in "iu"
        for bound in (part.low.min(), part.high.max())
        if bound not in _range_of(part.dtype)  # A limit of the dtype stands for no bound.
    ]
    if any(part.dtype not in (np.float32, np.float16) for _, part in parts):
        allowed.append(("the first observation holds", int(np.max(np.abs(observation)))))
    for holds, number in allowed:
        if abs(number) > _MAX_EXACT:
            return (
                f"{holds} {number}, but agents observe float32, in which numbers of this size are "
                f"multiples of {np.spacing(np.float32(abs(number))):.0f}. Let the environment "
                "subtract a constant, or return the parts of such a number."
            )
    return ""


def is_image(space: spaces.Space) -> bool:
    """Return whether observations of a space are images: uint8 or bool, with two axes or more."""
    is_box = isinstance(space, spaces.Box) and len(space.shape) > 1
    return is_box and space.dtype in (np.uint8, np.bool_)


def space_of(spec: Any, name: str) -> spaces.Space:
    """Return the space of a spec of dm_env, or of a nest of them; a space is its own.

    Args:
      spec: a spec, or dicts, lists and tuples of specs; or a space.
      name: name of the spec, for messages.

    Raises:
      ValueError: a spec is not one of arrays of numbers, or its bounds are no interval.
    """
    if isinstance(spec, spaces.Space):
        return spec
    if isinstance(spec, Mapping):
        return spaces.Dict({key: space_of(part, f"{name}[{key!r}]") for key, part in spec.items()})
    if isinstance(spec, (list, tuple)):
        return spaces.Tuple([space_of(part, f"{name}[{i}]") for i, part in enumerate(spec)])
    if not isinstance(spec, specs.Array) or spec.dtype.kind not in _NUMBERS:
        raise ValueError(f"{name} is {spec!r}; agents need arrays of numbers.")
    bounds = (-np.inf, np.inf) if spec.dtype.kind == "f" else _range_of(spec.dtype)
    low = np.broadcast_to(getattr(spec, "minimum", bounds[0]), spec.shape)
    high = np.broadcast_to(getattr(spec, "maximum", bounds[1]), spec.shape)
    # A bounded number that is observed may have any range, and is a place on a line.
    kinds = specs.BoundedArray if name == "action" else specs.DiscreteArray
    if spec.shape == () and spec.dtype.kind in "iu" and isinstance(spec, kinds):
        return spaces.Discrete(int(high) - int(low) + 1, start=int(low), dtype=spec.dtype)
    return spaces.Box(low, high, spec.shape, spec.dtype)


class OwnObservations:
    """Converts an environment's own observations, one or a batch."""

    def __init__(self, spec: ObservationSpec, convert: ObservationConverter | None = None):
        """Take the spec of agents' observations in the environment, and what converts one."""
        self._spec = spec
        self._convert = convert or convert_observations(spec.space)[1]

    def convert(self, observation: Any) -> tuple[np.ndarray, bool] | None:
        """Convert an observation of the space, or a batch whose arrays have one more axis in front.

        Returns:
          The observations as agents see them, `[B, ...]`, and whether it was a batch; None if the
          structure or the shapes do not match.

        Raises:
          ValueError: the space does not contain a value.
        """
        batch_shape = _find_batch_shape(self._spec.space, observation)
        if batch_shape is None:
            return None
        rows = [observation]
        if batch_shape:
            rows = [_take_row(observation, i) for i in range(*batch_shape)]
        array = np.array([self._convert(row) for row in rows], self._spec.dtype)
        return array.reshape([-1, *self._spec.shape]), bool(batch_shape)


def _make_reader(space: spaces.Space, path: str) -> ObservationConverter:
    """Return the function that converts the part of an observation at `path` to the agents' array.

    `space` is the space of the part. The function raises a ValueError that names the part, the
    value and the space if the space does not contain the part. Two exceptions: a part may have any
    dtype that holds its numbers, and numbers of a box only have to be in the range of its dtype,
    since many exceed their bounds a bit.
    """
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return _make_array_reader(space, path)
    readers = {key: _make_reader(part, f"{path}[{key!r}]") for key, part in _children(space)}

    def read_parts(observation: Any) -> np.ndarray:
        keys = _keys(observation)
        if keys is None:
            value = reprlib.repr(observation)
            raise ValueError(f"{path} is {value}, its space has the parts {[*readers]}")
        if set(keys) != readers.keys():
            raise ValueError(f"{path} has the parts {[*keys]}, its space {[*readers]}")
        parts = [read(observation[key]).ravel() for key, read in readers.items()]
        return np.concatenate(parts, dtype=np.float32)

    return read_parts


def _make_array_reader(space: Any, path: str) -> ObservationConverter:
    dtype, bounds, is_box = _dtype_of(space), _whole_bounds(space), isinstance(space, spaces.Box)
    shown = " ".join(str(space).split())  # Arrays of bounds have several lines.

    def read(observation: Any) -> np.ndarray:
        try:
            array = np.asarray(observation)
        except (TypeError, ValueError):  # The rows have different lengths.
            array = np.asarray(None)
        if array.dtype.kind not in _NUMBERS:
            raise ValueError(f"{path} is {reprlib.repr(observation)}, its space is {shown}")
        if array.shape != space.shape:
            raise ValueError(f"{path} has the shape {array.shape}, its space {space.shape}")
        # A frame in the dtype of its box has no number that could be outside.
        if bounds is not None and not (is_box and array.dtype == space.dtype):
            is_outside = (array < bounds[0]) | (array > bounds[1]) | (array != np.trunc(array))
            if is_outside.any():
                raise ValueError(f"{path} holds {array[is_outside][0]}, its space is {shown}")
        if not is_box:
            array = np.asarray(spaces.flatten(space, array.astype(space.dtype)))
        return array.astype(dtype, copy=False)

    return read


def _whole_bounds(space: Any) -> tuple[Any, Any] | None:
    """Return the bounds of a space of whole numbers, None for any other space."""
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return None if space.dtype.kind == "f" else _range_of(space.dtype)


def _dtype_of(space: Any) -> np.dtype:
    """Return the dtype in which agents observe a space that is neither a dict nor a tuple."""
    is_bytes = isinstance(space, spaces.Box) and (is_image(space) or space.dtype == np.uint8)
    return np.dtype(np.uint8 if is_bytes else np.float32)


def _make_spec(
    space: spaces.Space,
    box: Any,
    dtype: Any,
    parts: Sequence[ObservationSpec] = (),
    name: str = "observation",
) -> ObservationSpec:
    """Return the spec of observations of a space that were converted to a box and a dtype."""
    with np.errstate(over="ignore"):  # A bound beyond float32's range becomes infinite.
        low, high = (np.atleast_1d(bound).astype(dtype) for bound in (box.low, box.high))
    if not low.size:
        raise ValueError(
            f"the observation has no element, its shape is {low.shape}; let it be a constant."
        )
    least, most = (b.flat[0] if np.all(b == b.flat[0]) else b for b in (low, high))
    return ObservationSpec(low.shape, dtype, least, most, space, parts, name)


def _parts(space: spaces.Space, path: str) -> Iterator[tuple[str, spaces.Space]]:
    """Yield the parts of a space that are neither dicts nor tuples, and how one reaches them."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in _children(space):
            yield from _parts(part, f"{path}[{key!r}]")
    else:
        yield path, space


def _children(space: spaces.Dict | spaces.Tuple) -> Iterable[tuple[Any, spaces.Space]]:
    return space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)


def _keys(observation: Any) -> Iterable[Any] | None:
    """Return the keys of a dict or the indices of a sequence, None for something else."""
    if isinstance(observation, Mapping):
        return observation.keys()
    is_sequence = isinstance(observation, (tuple, list)) or getattr(observation, "ndim", 0) > 0
    return range(len(observation)) if is_sequence else None


def _range_of(dtype: np.dtype) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _find_batch_shape(space: Any, observation: Any) -> tuple[int, ...] | None:
    """Return `()` for an observation of a space, `(B,)` for a batch, None for something else."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        pairs = []
        if isinstance(space, spaces.Tuple):
            if isinstance(observation, tuple) and len(observation) == len(space):
                pairs = list(zip(space, observation, strict=True))
        elif isinstance(observation, Mapping) and observation.keys() == space.keys():
            pairs = [(space[key], observation[key]) for key in space]
        shapes = {_find_batch_shape(*pair) for pair in pairs}
        return shapes.pop() if len(shapes) == 1 else None
    try:
        array = np.asarray(observation)
    except ValueError:  # It is a list of arrays of different shapes.
        return None
    batch_shape = array.shape[: array.ndim - len(space.shape)]
    if len(batch_shape) > 1 or array.shape != batch_shape + space.shape:
        return None
    # Agents see places as one-hot vectors: whole numbers are the environment's.
    is_place = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
    return None if is_place and array.dtype.kind not in "iu" else batch_shape


def _take_row(observations: Any, index: int) -> Any:
    if isinstance(observations, Mapping):
        return {key: _take_row(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_take_row(part, index) for part in observations)
    return observations[index]
