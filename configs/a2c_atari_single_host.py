"""One Atari game by A2C on a laptop or a 2-core machine, with the network of the A3C paper.

It is smaller than DQN's, which the defaults have (Mnih et al. 2016, section 8; 2013, section 4.1).
"""

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=16,
        evaluation=EvaluationConfig(num_episodes=8, min_period_seconds=240.0),
    )
    # Five minutes of a game: an untrained player may never end one. apex-evaluate plays up to 30.
    atari = AtariConfig(evaluation_max_frames=18_000)
    environment = EnvironmentConfig(task="pong", atari=atari)
    agent = A2CConfig(torso="atari_small", learning_rate=0.003)
    return ExperimentConfig(agent=agent, environment=environment, run=run)
