"""LunarLander-v3 on one small machine; needs gymnasium's extra box2d."""

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDQNConfig(
        torso="mlp",
        mlp_hidden_sizes=(256,),
        stream_hidden_size=128,
        frame_stack=0,
        batch_size=128,
        learning_rate=0.0005,
        target_update_period=500,
        variable_update_period=20,
        publish_period=20,
        num_sgd_steps_per_step=4,
        exploration=ExplorationConfig(evaluation_epsilon=0.0),
        replay=ReplayConfig(
            max_size=200_000, min_size=5_000, samples_per_insert=32.0, prefetch_batches=8
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        target_return=TaskReturn(200.0, "LunarLander-v3"),
        max_actor_steps=300_000,
        evaluation=EvaluationConfig(num_episodes=20, min_period_seconds=10.0),
    )
    environment = EnvironmentConfig(suite="gymnasium", task="LunarLander-v3")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
