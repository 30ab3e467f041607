"""Environments stepped in lock-step: Atari, the control suite, gymnasium and toy tasks."""

from apex_agents.environments.atari_config import AtariConfig
from apex_agents.environments.factory import EnvironmentConfig, make_vector_environment
from apex_agents.environments.gymnasium_adapter import GymnasiumEnvironment
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import EnvironmentSpec, Episode, VectorEnvironment

__all__ = [
    "AtariConfig",
    "Catch",
    "EnvironmentConfig",
    "EnvironmentSpec",
    "Episode",
    "GymnasiumEnvironment",
    "PointMass",
    "VectorEnvironment",
    "make_vector_environment",
]
