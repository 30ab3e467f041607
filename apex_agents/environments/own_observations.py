"""Observations as an environment itself returns them, for policies that act outside of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments.conversion import ObservationSpec, convert_observations, space_of


class OwnObservations:
    """Converts what an environment itself returns, one observation or a batch of them."""

    def __init__(self, spec: specs.Array):
        """Take the spec of what agents observe in the environment."""
        is_own = isinstance(spec, ObservationSpec)
        self._spec = spec
        self._space = spec.space if is_own else space_of(spec, "observation")
        _, self._convert = convert_observations(self._space)

    def convert(self, observation: Any) -> tuple[np.ndarray, bool] | None:
        """Convert an observation of the space, or a batch whose arrays have one more axis in front.

        Returns:
          What agents see of them, `[B, ...]`, and whether it was a batch; None if the structure or
          the shapes are other ones.

        Raises:
          ValueError: the space does not contain a value.
        """
        batch_shape = _find_batch_shape(self._space, observation)
        if batch_shape is None:
            return None
        rows = [observation]
        if batch_shape:
            rows = [_take_row(observation, i) for i in range(*batch_shape)]
        array = np.array([self._convert(row) for row in rows], self._spec.dtype)
        return array.reshape([-1, *self._spec.shape]), bool(batch_shape)


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
    except ValueError:  # A list of arrays of different shapes.
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
