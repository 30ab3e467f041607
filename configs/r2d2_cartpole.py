"""CartPole-v1 without its velocities, which only a memory can tell, on one small machine."""

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.environments import EnvironmentConfig
from apex_agents.r2d2.config import R2D2Config
from apex_agents.replay.config import ReplayConfig

_TASK = "apex_agents.environments.toy:PositionOnlyCartPole"


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = R2D2Config(
        torso="mlp",
        mlp_hidden_sizes=(64,),
        core_size=64,
        stream_hidden_size=64,
        frame_stack=0,
        sequence_length=20,
        burn_in_length=10,
        sequence_period=10,
        n_step=5,
        discount=0.99,
        batch_size=32,
        learning_rate=0.001,
        adam_epsilon=1e-4,
        target_update_period=100,
        variable_update_period=20,
        publish_period=10,
        num_sgd_steps_per_step=4,
        exploration=ExplorationConfig(epsilon=0.4, alpha=4.0, evaluation_epsilon=0.0),
        replay=ReplayConfig(
            max_size=10_000,
            min_size=100,
            priority_exponent=0.9,
            importance_sampling_exponent=0.6,
            samples_per_insert=32.0,
            prefetch_batches=8,
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        target_return=TaskReturn(475.0, _TASK),
        max_actor_steps=300_000,
        evaluation=EvaluationConfig(num_episodes=20, min_period_seconds=1.0),
    )
    environment = EnvironmentConfig(suite="function", task=_TASK)
    return ExperimentConfig(agent=agent, environment=environment, run=run)
