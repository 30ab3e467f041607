"""Environments that are stepped together: Atari, control suite, gymnasium, toys, users' own."""

from apex_agents.environments.actions import (
    BoxActions,
    DiscreteActions,
    EnvironmentUnits,
    require_discrete_actions,
    require_unit_vectors,
)
from apex_agents.environments.adapters import adapt
from apex_agents.environments.atari import AtariConfig
from apex_agents.environments.conversion import OwnObservations
from apex_agents.environments.factory import (
    EnvironmentConfig,
    find_environment_fn,
    knows_evaluations,
    make_vector_environment,
    with_environment_fn,
)
from apex_agents.environments.spec_record import SpecRecord, find_spec_difference, record_spec
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import (
    EnvironmentSpec,
    Episode,
    SyncVectorEnvironment,
    VectorEnvironment,
)

__all__ = [
    "AtariConfig",
    "BoxActions",
    "Catch",
    "DiscreteActions",
    "EnvironmentConfig",
    "EnvironmentSpec",
    "EnvironmentUnits",
    "Episode",
    "OwnObservations",
    "PointMass",
    "SpecRecord",
    "SyncVectorEnvironment",
    "VectorEnvironment",
    "adapt",
    "find_environment_fn",
    "find_spec_difference",
    "knows_evaluations",
    "make_vector_environment",
    "record_spec",
    "require_discrete_actions",
    "require_unit_vectors",
    "with_environment_fn",
]
