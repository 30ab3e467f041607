"""Whether an agent can act in an environment, and which one can if it cannot."""

from typing import Any

import numpy as np
from dm_env import specs

from apex_agents.environments.vector_environment import EnvironmentSpec


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
        if isinstance(actions, specs.DiscreteArray):
            command = "the command apex-dqn, which is launch/apex_dqn.py"
            given = f"{actions.num_values} discrete actions. Use Ape-X DQN: {command}."
        raise ValueError(
            f"Ape-X DPG needs actions that are float vectors; the environment has {given}"
        )
    low, high = (np.broadcast_to(bound, actions.shape) for bound in _bounds(spec))
    is_open = ~(np.isfinite(low) & np.isfinite(high))
    if np.any(is_open):
        raise ValueError(
            "Ape-X DPG needs bounded actions; those of the environment have infinite bounds in the "
            f"elements {np.flatnonzero(is_open).tolist()}. Give its action space finite ones: "
            "actions are scaled to them."
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
