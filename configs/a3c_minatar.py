"""MinAtar's Breakout by A3C on one small machine; needs the package minatar.

`--config.environment.task=MinAtar/SpaceInvaders-v1` chooses another game: Asterix, Freeway and
Seaquest are the others.
"""

import importlib.util

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run.

    Raises:
      ValueError: MinAtar is not installed.
    """
    if importlib.util.find_spec("minatar") is None:  # It registers its environments by itself.
        raise ValueError("the config a3c_minatar needs MinAtar: pip install minatar")
    agent = A3CConfig(
        torso="conv",
        conv_channels=(16,),
        conv_kernel_sizes=(3,),
        conv_strides=(1,),
        mlp_hidden_sizes=(),
        hidden_size=128,
        frame_stack=0,
    )
    run = RunConfig(
        num_actors=2,
        num_envs_per_actor=8,
        max_actor_steps=5_000_000,
        evaluation=EvaluationConfig(num_episodes=10, min_period_seconds=30.0),
    )
    environment = EnvironmentConfig(
        suite="gymnasium",
        task="MinAtar/Breakout-v1",
        max_episode_steps=5_000,  # The games end by themselves alone, which may take for ever.
    )
    return ExperimentConfig(agent=agent, environment=environment, run=run)
