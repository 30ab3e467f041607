"""CartPole-v1 on one small machine, in well under a minute."""

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDQNConfig(
        torso="auto",
        mlp_hidden_sizes=(128,),
        stream_hidden_size=128,
        head="quantile",
        frame_stack=0,
        # Longer returns than on Atari, since with 3 steps the greedy policy gets worse again.
        n_step=10,
        batch_size=64,
        learning_rate=0.004,
        target_update_period=200,
        variable_update_period=20,
        publish_period=20,
        num_sgd_steps_per_step=8,
        exploration=ExplorationConfig(epsilon=0.5, alpha=3.0, evaluation_epsilon=0.0),
        replay=ReplayConfig(
            max_size=50_000, min_size=1_000, samples_per_insert=8.0, prefetch_batches=16
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        target_return=TaskReturn(475.0, "CartPole-v1"),
        max_actor_steps=1_000_000,
        evaluation=EvaluationConfig(num_episodes=20, min_period_seconds=1.0),
    )
    environment = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
