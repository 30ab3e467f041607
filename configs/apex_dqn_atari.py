"""The paper's run: 360 actors on one Atari game, for a cluster of about 376 cores and a GPU."""

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run; those of the agent are the defaults."""
    run = RunConfig(num_actors=360, num_envs_per_actor=1)  # Section 4.1.
    return ExperimentConfig(
        agent=ApexDQNConfig(), environment=EnvironmentConfig(task="pong"), run=run
    )
