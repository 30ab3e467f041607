"""One Atari game on a laptop or a 2-core machine: the paper's head and optimizer.

All else is as in `apex_dqn_atari_single_host`. Solves Pong in under an hour on two cores.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dqn_atari_single_host")
    config.agent.head = "dueling"
    config.agent.optimizer = "rmsprop"
    config.agent.learning_rate = 0.0002
    return config
