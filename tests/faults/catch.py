"""Ape-X DQN on Catch, at a speed at which every node has something to do; it does not end."""

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.replay.config import ReplayConfig


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        agent=ApexDQNConfig(
            torso="mlp",
            mlp_hidden_sizes=(16,),
            stream_hidden_size=16,
            frame_stack=0,
            batch_size=8,
            # Without a fixed ratio: neither the actors nor the learner wait for the other.
            replay=ReplayConfig(max_size=5_000, min_size=1_000, insert_batch=10),
        ),
        environment=EnvironmentConfig("toy", "catch"),
        run=RunConfig(
            num_actors=2,
            num_envs_per_actor=2,
            checkpoint_period_seconds=2.0,
            evaluation=EvaluationConfig(num_episodes=3, min_period_seconds=0.5),
        ),
    )
