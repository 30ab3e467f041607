"""A network of one's own: this file is a config, and brings the torso that its config names.

apex-dqn --config=examples/own_network.py
"""

import sonnet as snt
import tensorflow as tf

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec
from apex_agents.replay.config import ReplayConfig


def make_torso(spec: EnvironmentSpec, config: ApexDQNConfig) -> snt.Module:
    """Make a torso: observations [B, 4] of CartPole become features [B, 64]."""
    return snt.nets.MLP([64, 64], activation=tf.tanh, activate_final=True)


def get_config() -> ExperimentConfig:
    """Return the settings of the run: those of CartPole with another torso."""
    agent = ApexDQNConfig(
        torso="own_network:make_torso",
        stream_hidden_size=64,
        frame_stack=0,
        n_step=10,
        num_sgd_steps_per_step=8,
        batch_size=64,
        learning_rate=0.002,
        target_update_period=200,
        exploration=ExplorationConfig(epsilon=0.5, alpha=3.0, evaluation_epsilon=0.0),
        replay=ReplayConfig(max_size=50_000, min_size=1_000, samples_per_insert=8.0),
    )
    environment = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
    evaluation = EvaluationConfig(num_episodes=20, min_period_seconds=1.0)
    run = RunConfig(num_actors=1, num_envs_per_actor=8, target_return=475.0, evaluation=evaluation)
    return ExperimentConfig(agent, environment, run)
