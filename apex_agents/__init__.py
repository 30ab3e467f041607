"""Ape-X: distributed prioritized experience replay (Horgan et al. 2018).

What users import. The names are loaded on first use, so that importing the package, or one of its
rooms that needs no TensorFlow, stays cheap.
"""

import importlib
from typing import Any

_EXPORTS = {
    "ApexDPGBuilder": "apex_agents.dpg.builder",
    "ApexDPGConfig": "apex_agents.dpg.config",
    "ApexDQNBuilder": "apex_agents.dqn.builder",
    "ApexDQNConfig": "apex_agents.dqn.config",
    "EnvironmentConfig": "apex_agents.environments",
    "Experiment": "apex_agents.experiment",
    "ExplorationConfig": "apex_agents.acting.exploration",
    "ReplayConfig": "apex_agents.replay.config",
    "RunConfig": "apex_agents.config",
    "make_vector_environment": "apex_agents.environments",
    "make_program": "apex_agents.program",
    "run_local": "apex_agents.local",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import an exported name from the module that defines it."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
