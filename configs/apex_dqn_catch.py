"""Catch on one small machine, in seconds, to see that all parts work together."""

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDQNConfig(
        torso="mlp",
        mlp_hidden_sizes=(64,),
        stream_hidden_size=64,
        frame_stack=0,
        discount=0.9,
        batch_size=32,
        learning_rate=0.001,
        target_update_period=100,
        variable_update_period=10,
        publish_period=10,
        exploration=ExplorationConfig(alpha=3.0, evaluation_epsilon=0.0),
        replay=ReplayConfig(
            max_size=20_000, min_size=500, samples_per_insert=8.0, prefetch_batches=4
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        target_return=TaskReturn(0.9, "catch"),
        max_actor_steps=200_000,
        evaluation=EvaluationConfig(num_episodes=50, min_period_seconds=1.0),
    )
    environment = EnvironmentConfig(suite="toy", task="catch")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
