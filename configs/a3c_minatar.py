"""MinAtar's Breakout by A3C, by two workers; all else is as in `a2c_minatar`, minatar included."""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("a2c_minatar")
    config.agent = A3CConfig(**vars(config.agent))
    config.run.num_actors, config.run.num_envs_per_actor = 2, 16
    return config
