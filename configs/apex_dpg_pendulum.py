"""Pendulum-v1 on one small machine, in about a minute.

`samples_per_insert` holds the actor back, which would otherwise leave the learner no time.
"""

import dataclasses

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDPGConfig(
        batch_size=128,
        learning_rate=0.001,
        variable_update_period=20,
        num_sgd_steps_per_step=8,
        replay=dataclasses.replace(
            ApexDPGConfig().replay,
            max_size=100_000,
            min_size=1_000,
            samples_per_insert=32.0,
            prefetch_batches=16,
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        target_return=TaskReturn(-200.0, "Pendulum-v1"),
        max_actor_steps=500_000,
        evaluation=EvaluationConfig(num_episodes=20, min_period_seconds=3.0),
    )
    environment = EnvironmentConfig(suite="gymnasium", task="Pendulum-v1")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
