"""The paper's run: 360 actors on one Atari game, for a cluster of about 376 cores and a GPU."""

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run, which are the defaults."""
    return ExperimentConfig(
        agent=ApexDQNConfig(), environment=EnvironmentConfig(task="pong"), run=RunConfig()
    )
