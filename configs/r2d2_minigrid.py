"""MiniGrid's MemoryS7, which needs the package minigrid: the object at the start tells the way.

    apex-r2d2 --config=r2d2_minigrid --config.environment.kwargs.size=11

The agent sees a part of the maze at a time, 7 by 7 cells in front of it.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("r2d2_popgym")
    config.agent.torso = "conv"
    config.agent.conv_channels, config.agent.conv_kernel_sizes = (16, 32), (2, 2)
    config.agent.conv_strides = (1, 1)
    # The only reward is at the end of the maze.
    config.agent.n_step, config.agent.discount = 5, 0.99
    config.environment.suite = "function"
    config.environment.task = "apex_agents.environments.toy:make_minigrid_memory"
    config.environment.kwargs = {"size": 7}
    config.run.max_actor_steps = 1_000_000
    return config
