"""MinAtar's Breakout by Prioritized DQN (Schaul et al. 2016); needs the package minatar.

The settings of `dqn_minatar`, with prioritized samples; a new transition has the largest priority
so far.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("dqn_minatar")
    config.agent.replay.priority_exponent = 0.6
    config.agent.replay.initial_priority = "max"
    return config
