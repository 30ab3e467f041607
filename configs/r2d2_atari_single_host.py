"""One Atari game on a laptop or a 2-core machine, by R2D2 with a small network.

Sequences, network and batch of the paper's run (`r2d2_atari`) are smaller by half or more: without
a GPU the learner is the bottleneck. The rest of `apex_dqn_atari_single_host` that is no part of
the algorithm stays.
"""

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config
from apex_agents.r2d2.config import R2D2Config
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dqn_atari_single_host")
    config.agent = R2D2Config(
        torso="conv",
        conv_channels=(16, 32, 32),
        conv_kernel_sizes=(8, 4, 3),
        conv_strides=(4, 2, 1),
        mlp_hidden_sizes=(),
        core_size=256,
        stream_hidden_size=256,
        sequence_length=40,
        burn_in_length=20,
        sequence_period=20,
        batch_size=16,
        learning_rate=0.0004,
        target_update_period=400,
        variable_update_period=25,
        publish_period=25,
        bfloat16=True,
        exploration=ExplorationConfig(),
        replay=ReplayConfig(
            max_size=25_000,
            min_size=500,
            priority_exponent=0.9,
            importance_sampling_exponent=0.6,
            samples_per_insert=2.0,
            prefetch_batches=4,
        ),
    )
    config.environment.atari.clip_rewards = False
    config.environment.atari.life_loss_ends_episode = False
    return config
