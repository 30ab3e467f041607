"""Masks of legal actions: where environments say them, and how they join what agents observe.

An observation with a mask is one vector in the dtype of the observation: its numbers, and behind
them a 1 for each legal action and a 0 for each other one. So a mask goes wherever its observation
does: into the replay, the recurrent state of a sequence, an export.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments.actions import BoxActions, CombinedActions, DiscreteActions
from apex_agents.environments.conversion import (
    ObservationConverter,
    ObservationSpec,
    OwnObservations,
    convert_observations,
)
from apex_agents.environments.vector_environment import EnvironmentSpec

# The habit of gymnasium (in `info`) and of PettingZoo (in a Dict observation).
DEFAULT_MASK = "action_mask"


class MaskedObservationSpec(ObservationSpec):
    """Spec of observations that have the mask of legal actions behind them.

    Attributes:
      unmasked: spec of the observations alone, which networks see.
      actions: spec of the actions, of which there are A.
      mask: name of the mask in `info`, or of the entry of a Dict observation.
      in_info: whether it is in `info`.
    """

    def __init__(
        self,
        unmasked: ObservationSpec,
        actions: DiscreteActions | CombinedActions,
        mask: str,
        in_info: bool,
        space: spaces.Space,
    ):
        """Join both; `space` is that of the environment's own observations."""
        self.unmasked, self.actions, self.mask, self.in_info = unmasked, actions, mask, in_info
        shape = (math.prod(unmasked.shape) + actions.num_values,)
        least, most = min(np.min(unmasked.minimum), 0), max(np.max(unmasked.maximum), 1)
        super().__init__(shape, unmasked.dtype, least, most, space)

    def __reduce__(self) -> Any:
        return MaskedObservationSpec, (
            self.unmasked,
            self.actions,
            self.mask,
            self.in_info,
            self.space,
        )

    def take_mask(self, observation: Any, info: Mapping[str, Any] | None) -> tuple[Any, np.ndarray]:
        """Take the environment's own observation and its mask apart.

        Args:
          observation: one of the space.
          info: what `reset` or `step` gave with it; read if the mask is there.

        Returns:
          The observation without its mask, one of the space of `unmasked`; and the mask, bool
          `[A]`.

        Raises:
          ValueError: there is no mask, or it does not fit the actions.
        """
        holder, where = (info, "info") if self.in_info else (observation, "the observation")
        if not isinstance(holder, Mapping) or self.mask not in holder:
            raise ValueError(f"{where} has no {self.mask!r}, which held the legal actions before")
        legal = self.actions.to_mask(holder[self.mask])
        if self.in_info:
            return observation, legal
        rest = {name: part for name, part in observation.items() if name != self.mask}
        return next(iter(rest.values())) if len(rest) == 1 else rest, legal

    def read(
        self,
        observation: Any,
        info: Mapping[str, Any] | None,
        convert: ObservationConverter,
        is_terminal: bool,
    ) -> np.ndarray:
        """Convert the environment's own observation, and join its mask.

        Args:
          observation: one of the space.
          info: what came with it.
          convert: converts an own observation without its mask.
          is_terminal: whether the episode terminated there, so that nothing needs to be legal.

        Raises:
          ValueError: there is no mask, it does not fit the actions, or no action is legal.
        """
        rest, legal = self.take_mask(observation, info)
        if not legal.any() and not is_terminal:
            raise ValueError(
                f"no action is legal by {self.mask!r}, but the episode has not terminated: "
                "learning bootstraps from the legal actions of this state, also if it is truncated"
            )
        return self.join(convert(rest), legal)

    def split(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take observations `[B, N + A]` apart: those without masks, and masks int8 `[B, A]`."""
        num_actions = self.actions.num_values
        rest = observations[:, :-num_actions].reshape([-1, *self.unmasked.shape])
        return rest, (observations[:, -num_actions:] > 0).astype(np.int8)

    def join(self, observation: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """Put an agent's observation, or a batch of them, and masks `[A]` or `[B, A]` together."""
        flat = observation.reshape([*legal.shape[:-1], -1])
        return np.concatenate([flat, legal.astype(self.dtype)], axis=-1, dtype=self.dtype)


def find_mask(
    space: spaces.Space,
    actions: Any,
    name: str | None,
    find_info: Callable[[], Mapping[str, Any]] = dict,
) -> tuple[MaskedObservationSpec, ObservationConverter] | None:
    """Return the spec of observations with their masks; None if an environment has no masks.

    Args:
      space: space of the environment's own observations.
      actions: spec of an agent's actions.
      name: name of the mask, an entry of a Dict observation or of `info`; None for no mask.
      find_info: returns what the environment's first reset gave beside its observation; called if
        the mask may be there.

    Returns:
      The spec, and the function that converts an own observation without its mask.

    Raises:
      ValueError: there is no such mask, it does not fit the actions, or actions are not discrete.
    """
    entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
    is_entry = name in entries
    is_discrete = isinstance(actions, (DiscreteActions, CombinedActions))
    info = find_info() if name is not None and is_discrete and not is_entry else {}
    if name is None or not is_discrete or not (is_entry or name in info):
        if name not in (None, DEFAULT_MASK):
            kind = "" if is_discrete else "not "
            raise ValueError(
                f"environment.action_mask is {name!r}, but info has {[*info]}, a Dict observation "
                f"{[*entries]}, and actions are {kind}discrete. Name an entry with a 0 or a 1 for "
                "each action, or set None."
            )
        return None
    rest: spaces.Space = space
    if is_entry:
        entry = entries.pop(name)
        if entry.shape is not None:
            try:
                actions.to_mask(np.zeros(entry.shape))
            except ValueError as error:
                raise ValueError(
                    f"observation[{name!r}] is {entry}, but {error}. With "
                    "environment.action_mask=None it is observed as all else is."
                ) from None
        if not entries:
            raise ValueError(
                f"the observation has nothing beside {name!r}; let it have a constant."
            )
        rest = next(iter(entries.values())) if len(entries) == 1 else spaces.Dict(entries)
    unmasked, convert = convert_observations(rest)
    return MaskedObservationSpec(unmasked, actions, name, not is_entry, space), convert


def refuse_late_mask(missed: str | None, info: Mapping[str, Any]) -> None:
    """Raise a ValueError if `info` has a mask that it `missed` after the first reset."""
    if missed in info:
        raise ValueError(
            f"info has {missed!r}, but had none after the first reset; it has to be there after "
            "each reset and step. environment.action_mask=None leaves it unread"
        )


def own_observations(spec: ObservationSpec) -> OwnObservations:
    """Return what converts an environment's own observations, without masks that are in `info`."""
    if not isinstance(spec, MaskedObservationSpec):
        return OwnObservations(spec)
    if spec.in_info:
        return OwnObservations(spec.unmasked)
    _, convert = convert_observations(spec.unmasked.space)

    def convert_with_mask(observation: Any) -> np.ndarray:
        rest, legal = spec.take_mask(observation, None)
        return spec.join(convert(rest), legal)

    return OwnObservations(spec, convert_with_mask)


def draw_observations(spec: EnvironmentSpec, num_rows: int = 3) -> np.ndarray:
    """Return observations, `[num_rows, ...]`, that the environment may give."""
    observed: Any = spec.observations
    low, high = (0, 256) if observed.dtype == np.uint8 else (-1, 1)
    drawn = np.random.default_rng(0).uniform(low, high, (num_rows, *observed.shape))
    if isinstance(observed, specs.BoundedArray):
        drawn = drawn.clip(observed.minimum, observed.maximum)
    return drawn.astype(observed.dtype)


def draw_actions(
    spec: EnvironmentSpec, observations: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Draw an action of the agent for each of observations `[B, ...]`, a legal one: `[B, ...]`."""
    actions: Any = spec.actions
    if isinstance(actions, BoxActions):
        shape = [len(observations), *actions.shape]
        return random.uniform(actions.minimum, actions.maximum, shape).astype(actions.dtype)
    numbers = random.random([len(observations), actions.num_values])
    if isinstance(spec.observations, MaskedObservationSpec):
        numbers *= spec.observations.split(observations)[1]
    return numbers.argmax(axis=1).astype(actions.dtype)


def describe_actions(spec: EnvironmentSpec) -> list[str]:
    """Describe what agents make of the environment's actions, for people; nothing if it is none."""
    lines, observations, actions = [], spec.observations, spec.actions
    if isinstance(actions, CombinedActions):
        lines.append(f"Actions are the {actions.num_values} combinations of {list(actions.sizes)}.")
    if isinstance(observations, MaskedObservationSpec):
        where = "info" if observations.in_info else "the observation"
        lines.append(f"Only legal actions are taken, by {observations.mask!r} of {where}.")
    return lines


def has_mask(spec: EnvironmentSpec) -> bool:
    """Return whether observations have masks of legal actions behind them."""
    return getattr(spec.observations, "unmasked", None) is not None


def without_mask(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return the spec of an environment with observations alone, as networks see them."""
    observations: Any = spec.observations
    return spec._replace(observations=observations.unmasked) if has_mask(spec) else spec
