"""MinAtar's Breakout by A3C, with the settings of `a2c_minatar`; needs the package minatar."""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("a2c_minatar")
    config.agent = A3CConfig(**vars(config.agent))
    return config
