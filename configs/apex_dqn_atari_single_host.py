"""One Atari game on a laptop or a 2-core machine: chosen by what is learned per minute.

`apex_dqn_atari_single_host_paper`, with four changes, chosen on Pong and Breakout:

- quantiles of the return, by Adam with a learning rate that is larger than usual and falls to a
  tenth within about a million agent steps;
- convolutions and streams of half the width, which learn in a third of the time: without a GPU the
  learner is the bottleneck;
- a target network that is copied more often, so that values arrive at earlier states sooner;
- a lost life ends an episode in training, so that its cost is seen at once.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dqn_atari_single_host_paper")
    agent = config.agent
    agent.head = "quantile"
    agent.optimizer, agent.learning_rate, agent.learning_rate_steps = "adam", 0.0006, 60_000
    agent.torso, agent.mlp_hidden_sizes = "conv", ()
    agent.conv_channels = (16, 32, 32)
    agent.conv_kernel_sizes = (8, 4, 3)
    agent.conv_strides = (4, 2, 1)
    agent.stream_hidden_size = 256
    agent.target_update_period = 400
    config.environment.atari.life_loss_ends_episode = True
    return config
