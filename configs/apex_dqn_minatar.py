"""MinAtar's Breakout on one small machine; needs the package minatar.

`--config.environment.task=MinAtar/SpaceInvaders-v1` chooses another game: Asterix, Freeway and
Seaquest are the others. The number of environments, the samples per insert and the learning rate
did best in the paper's figure 12 on these games: results/experiments.md.
"""

import importlib.util

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run.

    Raises:
      ValueError: MinAtar is not installed.
    """
    if importlib.util.find_spec("minatar") is None:  # It registers its environments by itself.
        raise ValueError("the config apex_dqn_minatar needs MinAtar: pip install minatar")
    agent = ApexDQNConfig(
        torso="conv",
        conv_channels=(16,),
        conv_kernel_sizes=(3,),
        conv_strides=(1,),
        mlp_hidden_sizes=(),
        stream_hidden_size=128,
        frame_stack=0,
        batch_size=64,
        learning_rate=0.001,
        target_update_period=500,
        variable_update_period=20,
        publish_period=20,
        num_sgd_steps_per_step=4,
        exploration=ExplorationConfig(evaluation_epsilon=0.01),
        replay=ReplayConfig(
            max_size=100_000, min_size=5_000, samples_per_insert=2.0, prefetch_batches=8
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=128,
        max_actor_steps=1_000_000,
        evaluation=EvaluationConfig(num_episodes=10, min_period_seconds=30.0),
    )
    environment = EnvironmentConfig(
        suite="gymnasium",
        task="MinAtar/Breakout-v1",
        max_episode_steps=5_000,  # The games end by themselves alone, which may take for ever.
    )
    return ExperimentConfig(agent=agent, environment=environment, run=run)
