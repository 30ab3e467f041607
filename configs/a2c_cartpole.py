"""CartPole-v1 by A2C on one small machine, in half a minute."""

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = A2CConfig(
        torso="auto",
        mlp_hidden_sizes=(64, 64),
        hidden_size=0,
        frame_stack=0,
        # Returns of up to 100 make the value's error large: on a common torso it would leave little
        # of the policy's gradient.
        separate_value=True,
        mlp_activation="tanh",
        learning_rate=0.003,
        entropy_coefficient=0.0,
        greedy_evaluation=True,
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=16,
        target_return=TaskReturn(475.0, "CartPole-v1"),
        max_actor_steps=1_000_000,
        evaluation=EvaluationConfig(num_episodes=20, min_period_seconds=0.3),
    )
    environment = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
