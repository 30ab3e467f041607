"""The run of the R2D2 paper: 256 actors on one Atari game, for a cluster with a GPU."""

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.environments.atari import AtariConfig
from apex_agents.r2d2.config import R2D2Config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    # Rewards keep their size: values are rescaled.
    atari = AtariConfig(clip_rewards=False, max_frames=108_000)
    return ExperimentConfig(
        agent=R2D2Config(),
        environment=EnvironmentConfig(task="pong", atari=atari),
        run=RunConfig(num_actors=256, num_envs_per_actor=1),
    )
