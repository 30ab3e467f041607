"""MinAtar's Breakout by Gorila, asynchronous learners around a parameter server; needs minatar.

Nair et al. 2015: DQN with uniform samples of single steps, each 8 times on average, AdaGrad, and
the targets of the parameter server; gradients that are too old or have outlying losses are left
out. Unlike there: four learners and 16 environments, not a hundred each; one replay and one server,
not many shards; batches of 64; a target that is copied every 1,000 updates, not 60,000, of networks
for MinAtar, dueling and double; thresholds of our own, since the paper names none.
"""

from apex_agents.config import ExperimentConfig, LearnersConfig
from apex_agents.dqn.config import ExplorationConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dqn_minatar")
    config.run.num_learners = 4
    config.run.learners = LearnersConfig("asynchronous", max_staleness=20, num_deviations=5.0)
    config.run.num_envs_per_actor = 16
    agent = config.agent
    agent.n_step = 1
    agent.optimizer = "adagrad"
    agent.learning_rate = 0.01
    agent.target_update_period = 1_000
    agent.num_sgd_steps_per_step = 1
    agent.exploration = ExplorationConfig(
        epsilon=0.1, alpha=0.0, evaluation_epsilon=0.01, annealing_steps=5_000
    )
    agent.replay.priority_exponent = 0.0
    agent.replay.samples_per_insert = 8.0
    return config
