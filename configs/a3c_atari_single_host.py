"""One Atari game by A3C on a laptop or a 2-core machine: settings of `a2c_atari_single_host`."""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("a2c_atari_single_host")
    config.agent = A3CConfig(**vars(config.agent))
    return config
