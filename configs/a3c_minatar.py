"""MinAtar's Breakout by A3C, by two workers; needs the package minatar.

Each of their gradients is an update, so that there are twice as many as in `a2c_minatar`, of half
the learning rate. All else is as there.
"""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("a2c_minatar")
    config.agent = A3CConfig(**vars(config.agent))
    config.agent.learning_rate, config.agent.learning_rate_steps = 0.005, 62_500
    config.run.num_actors, config.run.num_envs_per_actor = 2, 16
    return config
