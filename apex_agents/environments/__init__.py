"""Environments that are stepped together: Atari, control suite, gymnasium, toys, users' own."""

from apex_agents.environments.actions import (
    Actions,
    BoxActions,
    CombinedActions,
    DiscreteActions,
    EnvironmentUnits,
    require_discrete_actions,
    require_unit_vectors,
)
from apex_agents.environments.adapters import adapt
from apex_agents.environments.atari import AtariConfig
from apex_agents.environments.factory import (
    EnvironmentConfig,
    find_environment_fn,
    knows_evaluations,
    make_vector_environment,
    with_environment_fn,
)
from apex_agents.environments.masks import (
    MaskedObservationSpec,
    describe_actions,
    draw_actions,
    draw_observations,
    has_mask,
    own_observations,
    without_mask,
)
from apex_agents.environments.spec_record import SpecRecord, find_spec_difference, record_spec
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import (
    EnvironmentSpec,
    Episode,
    SyncVectorEnvironment,
    VectorEnvironment,
    make_batch,
    restart_batch,
)

__all__ = [
    "Actions",
    "AtariConfig",
    "BoxActions",
    "Catch",
    "CombinedActions",
    "DiscreteActions",
    "EnvironmentConfig",
    "EnvironmentSpec",
    "EnvironmentUnits",
    "Episode",
    "MaskedObservationSpec",
    "PointMass",
    "SpecRecord",
    "SyncVectorEnvironment",
    "VectorEnvironment",
    "adapt",
    "describe_actions",
    "draw_actions",
    "draw_observations",
    "find_environment_fn",
    "find_spec_difference",
    "has_mask",
    "knows_evaluations",
    "make_batch",
    "make_vector_environment",
    "own_observations",
    "record_spec",
    "require_discrete_actions",
    "require_unit_vectors",
    "restart_batch",
    "with_environment_fn",
    "without_mask",
]
