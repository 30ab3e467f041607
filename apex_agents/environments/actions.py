"""Actions in the units of agents and of environments, and agents' requirements."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments.vector_environment import EnvironmentSpec, VectorEnvironment

# Combinations of several discrete actions that are as many actions of an agent.
MAX_COMBINATIONS = 1_000
_MAX_RADIUS = 1e9  # Of boxes to which actions are scaled; greater ones stand for none.


class DiscreteActions(specs.DiscreteArray):
    """Spec of actions that agents count from 0, and environments from the start of their space.

    Attributes:
      space: action space of the environment.
    """

    def __init__(self, space: spaces.Discrete):
        super().__init__(int(space.n), np.int32, name="action")
        self.space = space

    def __reduce__(self) -> Any:
        return DiscreteActions, (self.space,)

    @property
    def environment_spec(self) -> specs.BoundedArray:
        """Spec of the environment's own numbers."""
        start = int(self.space.start)
        last = start + self.num_values - 1
        return specs.BoundedArray((), self.space.dtype, start, last, name="action")

    def to_environment(self, actions: Any) -> Any:
        """Convert an agent's action numbers, `[]` or `[B]`, to the environment's, in its dtype."""
        return (np.asarray(actions, np.int64) + self.space.start).astype(self.space.dtype)

    def to_agent(self, actions: Any) -> Any:
        """Convert the environment's action numbers, `[]` or `[B]`, to the agent's, int32."""
        return (np.asarray(actions, np.int64) - self.space.start).astype(np.int32)

    def to_mask(self, legal: Any) -> np.ndarray:
        """Return a mask of legal actions as bool `[A]`.

        Raises:
          ValueError: it is not an array of A numbers that are 0 or 1.
        """
        return _to_mask(legal, self.num_values)


class CombinedActions(specs.DiscreteArray):
    """Spec of actions that are combinations of several discrete ones, which agents count from 0.

    The last one changes fastest, as in `numpy.unravel_index`.

    Attributes:
      space: action space of the environment: MultiDiscrete, MultiBinary or a Tuple of Discrete.
      sizes: number of values of each of the D actions that are combined.
    """

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary | spaces.Tuple):
        """Count the combinations; a ValueError says that they are too many."""
        self.space = space
        self._own_dtype: Any = space.dtype
        if isinstance(space, spaces.MultiDiscrete):
            sizes, starts = np.ravel(space.nvec), np.ravel(space.start)
        elif isinstance(space, spaces.MultiBinary):
            sizes, starts = np.full(space.shape, 2).ravel(), np.zeros(space.shape, int).ravel()
        else:
            parts: Sequence[Any] = space.spaces
            sizes, starts = np.array([(int(part.n), int(part.start)) for part in parts]).T
            self._own_dtype = np.dtype(np.int64)
        self.sizes = tuple(map(int, sizes))
        self._starts = starts
        number = math.prod(self.sizes)
        if number > MAX_COMBINATIONS:
            raise ValueError(
                f"actions are {space}, {number:,} combinations; each is an action of the agent, "
                f"which can have {MAX_COMBINATIONS:,}. Let a gymnasium.ActionWrapper leave some "
                "out, in a function that environment.suite='function' names."
            )
        super().__init__(number, np.int32, name="action")

    def __reduce__(self) -> Any:
        return CombinedActions, (self.space,)

    @property
    def environment_spec(self) -> specs.BoundedArray:
        """Spec of the environment's own numbers, `[D]` or as its MultiDiscrete is shaped."""
        shape = self.space.shape or (len(self.sizes),)
        low, high = self._starts, self._starts + self.sizes - 1
        bounds = [np.reshape(bound, shape) for bound in (low, high)]
        return specs.BoundedArray(shape, self._own_dtype, *bounds, name="action")

    def to_environment(self, actions: Any) -> Any:
        """Convert an agent's action numbers to the environment's.

        Args:
          actions: `[]` or `[B]`.

        Returns:
          An action of the space, a tuple for a Tuple; or a batch, `[B, ...]`, an array.
        """
        numbers = np.stack(np.unravel_index(np.asarray(actions, np.int64), self.sizes), axis=-1)
        numbers = (numbers + self._starts).astype(self._own_dtype)
        if isinstance(self.space, spaces.Tuple) and numbers.ndim == 1:
            return tuple(numbers)
        return numbers.reshape([*numbers.shape[:-1], *self.environment_spec.shape])

    def to_agent(self, actions: Any) -> Any:
        """Convert the environment's actions, one or a batch, to the agent's numbers, int32."""
        numbers = np.asarray(actions, np.int64)
        batch_shape = numbers.shape[: numbers.ndim - len(self.environment_spec.shape)]
        flat = numbers.reshape([*batch_shape, len(self.sizes)])
        by_action = tuple(np.moveaxis(flat - self._starts, -1, 0))
        return np.asarray(np.ravel_multi_index(by_action, self.sizes), np.int32)

    def to_mask(self, legal: Any) -> np.ndarray:
        """Return a mask of legal combinations as bool `[A]`.

        Args:
          legal: a number, 0 or 1, for each combination, `[A]` or in the shape of `sizes`; or a
            tuple of a mask for each of the D actions, as `MultiDiscrete.sample` takes it, whose
            combinations are legal if all of their parts are.

        Raises:
          ValueError: it is neither.
        """
        are_parts = isinstance(legal, tuple) and len(legal) == len(self.sizes)
        if are_parts and any(map(np.ndim, legal)):
            masks = [_to_mask(mask, n) for mask, n in zip(legal, self.sizes, strict=True)]
            return functools.reduce(np.logical_and.outer, masks).ravel()
        return _to_mask(legal, self.num_values, self.sizes)


def _to_mask(legal: Any, num_actions: int, table: tuple[int, ...] = ()) -> np.ndarray:
    """Return a mask `[A]`, or one in the shape of a table of A numbers, as bool `[A]`."""
    try:
        array = np.asarray(legal)
    except ValueError:  # Its parts have different lengths.
        array = np.asarray(None)
    is_mask = array.shape in ((num_actions,), table) and array.dtype.kind in "biuf"
    if not is_mask or not np.isin(array, (0, 1)).all():
        is_array = array.dtype != np.object_ and array.size > 10
        given = f"{array.dtype} {list(array.shape)}" if is_array else repr(legal)
        raise ValueError(
            f"the mask of legal actions is {given}; it has to hold a 0 or a 1 for each of the "
            f"{num_actions} actions"
        )
    return array.ravel() != 0


class BoxActions(specs.BoundedArray):
    """Spec of actions that agents choose in [-1, 1], float32, and that are scaled to a box.

    A box of whole numbers, or one without finite bounds, is not scaled: agents refuse it.

    Attributes:
      space: action space of the environment, with the bounds `low` and `high`.
      middle: the environment's action for the agent's 0, in the shape of an action.
      radius: increase of the environment's action from the agent's 0 to its 1, in the same shape.
    """

    def __init__(self, space: spaces.Box):
        self.space = space
        low: Any = space.low
        high: Any = space.high
        dtype: Any = np.float32
        self.middle, self.radius = np.zeros_like(low), np.ones_like(high)
        if not np.issubdtype(space.dtype, np.floating):
            dtype = space.dtype
        elif space.is_bounded():
            self.middle, self.radius = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
            low, high = -1.0, 1.0
        with np.errstate(over="ignore"):  # A bound beyond float32's range becomes infinite.
            bounds = [np.asarray(bound).astype(dtype) for bound in (low, high)]
        super().__init__(space.shape, dtype, *bounds, name="action")

    def __reduce__(self) -> Any:
        return BoxActions, (self.space,)

    @property
    def environment_spec(self) -> specs.BoundedArray:
        """Spec of the environment's own actions."""
        low, high = self.space.low, self.space.high
        return specs.BoundedArray(self.space.shape, self.space.dtype, low, high, name="action")

    def to_environment(self, actions: Any) -> np.ndarray:
        """Scale an agent's actions, `[D]` or `[B, D]`, to the environment's box and dtype; clip."""
        scaled = self.middle + self.radius * np.asarray(actions, np.float64)
        return np.clip(scaled, self.space.low, self.space.high).astype(self.space.dtype)

    def to_agent(self, actions: Any) -> np.ndarray:
        """Scale the environment's actions, `[D]` or `[B, D]`, to the agent's range."""
        moved = np.asarray(actions, np.float64) - self.middle
        # Where the bounds are equal there is one action, whatever the agent says.
        return (moved / np.where(self.radius > 0, self.radius, 1)).astype(self.dtype)


Actions = DiscreteActions | CombinedActions | BoxActions


def convert_actions(space: spaces.Space) -> Actions:
    """Return the spec of an agent's actions, which converts them to the environment's.

    Raises:
      ValueError: the space is neither discrete, nor a combination of discrete ones, nor a box, or
        it has too many combinations.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, spaces.Box):
        return BoxActions(space)
    parts: Sequence[Any] = space.spaces if isinstance(space, spaces.Tuple) else ()
    are_discrete = bool(parts) and all(isinstance(part, spaces.Discrete) for part in parts)
    if are_discrete or isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return CombinedActions(space)  # type: ignore[arg-type]
    raise ValueError(
        f"actions are {space}; agents need Discrete, MultiDiscrete or MultiBinary actions, or a "
        "Tuple of Discrete ones (Ape-X DQN), or a Box (Ape-X DPG). Let a gymnasium.ActionWrapper "
        "make them so, in a function that environment.suite='function' names."
    )


class EnvironmentUnits:
    """A `VectorEnvironment` that is stepped with actions in the units of the environment.

    A step of environments that begin episodes at once has their FIRST rows in place of the LAST,
    with the rewards of the latter.
    """

    def __init__(self, environment: VectorEnvironment):
        """Wrap environments that are stepped with the actions of agents."""
        self._environment = environment
        self._actions: Any = environment.spec.actions
        self.spec = environment.spec._replace(actions=self._actions.environment_spec)

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        timestep = self._environment.step(self._actions.to_agent(actions))
        begun = self._environment.begin_episodes()
        return timestep if begun is None else begun._replace(reward=timestep.reward)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


def require_discrete_actions(spec: EnvironmentSpec, needs: str) -> None:
    """Raise a ValueError unless actions are discrete; `needs` begins it, as 'Ape-X DQN needs'."""
    actions = spec.actions
    if isinstance(actions, specs.DiscreteArray):
        return
    low, high = _bounds(spec)
    advice = " Use Ape-X DPG: the command apex-dpg, which is launch/apex_dpg.py."
    raise ValueError(
        f"{needs} discrete actions; those of the environment are {actions.dtype} arrays of shape "
        f"{list(actions.shape)}, between {np.min(low):g} and {np.max(high):g}."
        f"{advice if _are_float_vectors(spec) else ''}"
    )


def require_unit_vectors(spec: EnvironmentSpec) -> None:
    """Raise a ValueError unless actions are float vectors in [-1, 1], as Ape-X DPG needs them."""
    actions = spec.actions
    if not _are_float_vectors(spec):
        given = f"{actions.dtype} arrays of shape {list(actions.shape)}."
        if np.issubdtype(actions.dtype, np.floating):
            given += " Let a gymnasium.ActionWrapper take vectors and reshape them."
        if isinstance(actions, specs.DiscreteArray):
            command = "the command apex-dqn, which is launch/apex_dqn.py"
            given = f"{actions.num_values} discrete actions. Use Ape-X DQN: {command}."
        raise ValueError(
            f"Ape-X DPG needs actions that are float vectors; the environment has {given}"
        )
    low, high = (np.broadcast_to(bound, actions.shape) for bound in _bounds(spec))
    radius = np.broadcast_to(getattr(actions, "radius", 1.0), actions.shape)
    is_open = ~(np.isfinite(low) & np.isfinite(high)) | (radius > _MAX_RADIUS)
    if np.any(is_open):
        raise ValueError(
            "Ape-X DPG needs bounded actions; those of the environment have infinite bounds, or a "
            f"range above {2 * _MAX_RADIUS:g}, in the elements {np.flatnonzero(is_open).tolist()}. "
            "Give its action space those of sensible actions: actions are scaled to them."
        )
    if np.any(low != -1) or np.any(high != 1):
        bounds = " and ".join(str(np.asarray(bound).tolist()) for bound in (low, high))
        raise ValueError(
            f"Ape-X DPG needs actions in [-1, 1]; those of the environment are {actions.dtype} "
            f"vectors of shape {list(actions.shape)}, between {bounds}. Let it scale them."
        )


def _are_float_vectors(spec: EnvironmentSpec) -> bool:
    return bool(np.issubdtype(spec.actions.dtype, np.floating) and len(spec.actions.shape) == 1)


def _bounds(spec: EnvironmentSpec) -> tuple[Any, Any]:
    return getattr(spec.actions, "minimum", -np.inf), getattr(spec.actions, "maximum", np.inf)
