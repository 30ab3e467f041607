"""MinAtar's Breakout by DQN, without what Ape-X adds to it; needs the package minatar.

One environment, whose epsilon falls, transitions of one step and uniform samples (Mnih et al.
2015); networks, targets and optimizer are those of `apex_dqn_minatar`, dueling and double. The
learner samples each transition 8 times on average: there it samples 32 for every 4 agent steps.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.dqn.config import ExplorationConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dqn_minatar")
    config.run.num_envs_per_actor = 1
    config.agent.n_step = 1
    config.agent.exploration = ExplorationConfig(
        epsilon=0.01,
        alpha=0.0,
        evaluation_epsilon=0.01,
        annealing_steps=2_500,  # About 25,000 agent steps, with those before learning starts.
    )
    config.agent.replay.samples_per_insert = 8.0
    config.agent.replay.priority_exponent = 0.0
    return config
