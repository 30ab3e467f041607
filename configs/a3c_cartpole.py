"""CartPole-v1 by A3C on one small machine, in half a minute.

All but the learning rate is as in `a2c_cartpole`.
"""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("a2c_cartpole")
    config.agent = A3CConfig(**vars(config.agent))
    config.agent.learning_rate = 0.003
    return config
