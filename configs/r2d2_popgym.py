"""A memory task of POPGym, which has to be installed, on one small machine.

Any of its tasks with discrete actions: --config.environment.task=popgym-CountRecallEasy-v0 ...
It has the settings of `r2d2_cartpole`, with a larger core and longer sequences.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("r2d2_cartpole")
    agent, run = config.agent, config.run
    agent.core_size = 128
    # Many easy tasks end after about fifty steps: such episodes are trained whole.
    agent.sequence_length, agent.sequence_period = 50, 25
    # Actions change little of what comes later, whose noise longer returns would add.
    agent.n_step, agent.discount = 1, 0.95
    # The rewards of an episode add up to 1 at most; gradients are as small.
    agent.adam_epsilon = 1e-8
    agent.num_sgd_steps_per_step = 2
    agent.exploration.alpha = 7.0
    run.target_return = None
    run.evaluation.num_episodes, run.evaluation.min_period_seconds = 50, 5.0
    config.environment = EnvironmentConfig("gymnasium", "popgym-RepeatFirstEasy-v0")
    return config
