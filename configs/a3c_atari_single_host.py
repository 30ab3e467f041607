"""One Atari game by A3C on a laptop or a 2-core machine.

There are two workers; all else but the learning rate is as in `a2c_atari_single_host`.
"""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("a2c_atari_single_host")
    config.agent = A3CConfig(**vars(config.agent))
    config.agent.learning_rate = 7e-4
    config.run.num_actors, config.run.num_envs_per_actor = 2, 8
    return config
