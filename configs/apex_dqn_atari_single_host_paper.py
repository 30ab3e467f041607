"""One Atari game on a laptop or a 2-core machine: the paper's network, head and optimizer.

As little differs from the paper's run (`apex_dqn_atari`) as such a machine allows: fewer actors,
smaller batches and less replay memory, parameters that are copied more often, and a larger learning
rate. Without a GPU the learner is the bottleneck. `samples_per_insert` holds the actor back: to
half of the samples that DQN takes per agent step (Mnih et al. 2015: 32 for every 4), since acting
is cheap. Solves Pong in under an hour on two cores.
"""

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDQNConfig(
        batch_size=64,
        learning_rate=0.0002,
        target_update_period=500,
        publish_period=25,
        variable_update_period=25,
        bfloat16=True,
        replay=ReplayConfig(
            max_size=500_000, min_size=10_000, samples_per_insert=4.0, prefetch_batches=8
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=16,
        evaluation=EvaluationConfig(num_episodes=8, min_period_seconds=240.0),
    )
    # Five minutes of a game: an untrained player may never end one. apex-evaluate plays up to 30.
    atari = AtariConfig(evaluation_max_frames=18_000)
    environment = EnvironmentConfig(task="pong", atari=atari)
    return ExperimentConfig(agent=agent, environment=environment, run=run)
