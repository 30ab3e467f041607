"""Cart-pole swing-up of the control suite on one small machine.

`samples_per_insert` holds the actor back, which would otherwise leave the learner no time.
"""

import dataclasses

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig, TaskReturn
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDPGConfig(
        learning_rate=0.0003,
        variable_update_period=50,
        replay=dataclasses.replace(
            ApexDPGConfig().replay,
            max_size=500_000,
            min_size=10_000,
            samples_per_insert=32.0,
            prefetch_batches=4,
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        target_return=TaskReturn(800.0, "cartpole:swingup"),
        max_actor_steps=2_000_000,
        evaluation=EvaluationConfig(num_episodes=10, min_period_seconds=20.0),
    )
    environment = EnvironmentConfig(suite="control", task="cartpole:swingup")
    return ExperimentConfig(agent=agent, environment=environment, run=run)
