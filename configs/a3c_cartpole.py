"""CartPole-v1 by A3C on one small machine, in a minute or two."""

from apex_agents.actor_critic.config import A3CConfig
from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = A3CConfig(
        torso="mlp",
        mlp_hidden_sizes=(64, 64),
        hidden_size=0,
        frame_stack=0,
        entropy_coefficient=0.0,
        greedy_evaluation=True,
    )
    run = RunConfig(
        num_actors=2,
        num_envs_per_actor=8,
        target_return=475.0,
        max_actor_steps=1_000_000,
        evaluation=EvaluationConfig(num_episodes=20, min_period_seconds=1.0),
    )
    environment = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
