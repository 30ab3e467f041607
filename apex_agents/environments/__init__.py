"""Environments that are stepped together: Atari, the control suite, gymnasium, toy tasks."""

from apex_agents.environments.atari_config import AtariConfig
from apex_agents.environments.factory import EnvironmentConfig, make_vector_environment
from apex_agents.environments.gymnasium_adapter import GymnasiumEnvironment
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import (
    EnvironmentSpec,
    Episode,
    SyncVectorEnvironment,
    VectorEnvironment,
)

__all__ = [
    "AtariConfig",
    "Catch",
    "EnvironmentConfig",
    "EnvironmentSpec",
    "Episode",
    "GymnasiumEnvironment",
    "PointMass",
    "SyncVectorEnvironment",
    "VectorEnvironment",
    "make_vector_environment",
]
