"""MinAtar's Breakout by A2C on one small machine; needs the package minatar.

`--config.environment.task=MinAtar/SpaceInvaders-v1` chooses another game. Environment, torso and
evaluation are those of `apex_dqn_minatar`.
"""

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dqn_minatar")
    dqn = config.agent
    config.agent = A2CConfig(
        torso=dqn.torso,
        conv_channels=dqn.conv_channels,
        conv_kernel_sizes=dqn.conv_kernel_sizes,
        conv_strides=dqn.conv_strides,
        mlp_hidden_sizes=dqn.mlp_hidden_sizes,
        hidden_size=dqn.stream_hidden_size,
        frame_stack=dqn.frame_stack,
        learning_rate=0.01,
        learning_rate_steps=31_250,  # As many as max_actor_steps below allow.
    )
    config.run.num_actors = 1
    config.run.num_envs_per_actor = 32
    config.run.max_actor_steps = 5_000_000
    return config
