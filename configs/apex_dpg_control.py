"""The paper's run on the control suite: 64 actors, for a machine of about 70 cores.

`--config.environment.task` chooses one of the paper's tasks: humanoid:stand, humanoid:walk,
humanoid:run, manipulator:bring_ball. On a small machine, let fewer processes step the same 64
environments:
`--config.run.num_actors=2 --config.run.num_envs_per_actor=32`.
"""

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    environment = EnvironmentConfig(suite="control", task="humanoid:stand")
    run = RunConfig(num_actors=64, num_envs_per_actor=1)  # Section 4.2.
    return ExperimentConfig(agent=ApexDPGConfig(), environment=environment, run=run)
