"""Ape-X: distributed prioritized experience replay (Horgan et al. 2018).

The public names. They are imported on first use, so that modules that need no TensorFlow stay fast
to import.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apex_agents.acting.exploration import ExplorationConfig
    from apex_agents.actor_critic.builder import ActorCriticBuilder
    from apex_agents.actor_critic.config import A2CConfig, A3CConfig
    from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
    from apex_agents.dpg.builder import ApexDPGBuilder
    from apex_agents.dpg.config import ApexDPGConfig, NoiseConfig
    from apex_agents.dqn.builder import ApexDQNBuilder
    from apex_agents.dqn.config import ApexDQNConfig
    from apex_agents.environment_report import check
    from apex_agents.environments import EnvironmentConfig, make_vector_environment
    from apex_agents.experiment import Experiment, make_experiment
    from apex_agents.loading import load
    from apex_agents.local import run_local
    from apex_agents.presets import load_config
    from apex_agents.program import make_program
    from apex_agents.r2d2.builder import R2D2Builder
    from apex_agents.r2d2.config import R2D2Config
    from apex_agents.replay.config import ReplayConfig
    from apex_agents.studies.study import Setting, Study
    from apex_agents.training import train

# Read when TensorFlow is imported, by this process and by the nodes: its remarks about missing GPU
# drivers are no news, and its errors arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Reverb's connections would go through the proxy of `http_proxy`. One that is given for gRPC is for
# other hosts: no proxy reaches a replay of this machine.
os.environ.setdefault("grpc_proxy", "")
_NO_PROXY = "no_grpc_proxy"  # Read before `no_proxy`.
_direct = os.environ.get(_NO_PROXY) or os.environ.get("no_proxy") or ""
if "localhost" not in _direct.split(","):
    os.environ[_NO_PROXY] = ",".join(filter(None, [_direct, "localhost"]))

__version__ = "0.2.0"  # The only place: pyproject.toml reads it.

_MODULES = {
    "A2CConfig": "actor_critic.config",
    "A3CConfig": "actor_critic.config",
    "ActorCriticBuilder": "actor_critic.builder",
    "ApexDPGBuilder": "dpg.builder",
    "ApexDPGConfig": "dpg.config",
    "ApexDQNBuilder": "dqn.builder",
    "ApexDQNConfig": "dqn.config",
    "EnvironmentConfig": "environments",
    "EvaluationConfig": "config",
    "Experiment": "experiment",
    "ExperimentConfig": "config",
    "ExplorationConfig": "acting.exploration",
    "NoiseConfig": "dpg.config",
    "R2D2Builder": "r2d2.builder",
    "R2D2Config": "r2d2.config",
    "ReplayConfig": "replay.config",
    "RunConfig": "config",
    "Setting": "studies.study",
    "Study": "studies.study",
    "check": "environment_report",
    "load": "loading",
    "load_config": "presets",
    "make_experiment": "experiment",
    "make_program": "program",
    "make_vector_environment": "environments",
    "run_local": "local",
    "train": "training",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"apex_agents.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names too, for completion in notebooks."""
    return sorted({*globals(), *__all__})
