"""Tasks of the control suite on one small machine: in few steps, and thus in few minutes.

The field `environment.task` chooses the task, as walker:walk; an action is held for the number of
environment steps that is usual for it. docs/tutorials/control.md says what differs from the paper,
and why.
"""

import dataclasses

from apex_agents.config import EvaluationConfig, ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig, NoiseConfig
from apex_agents.environments import EnvironmentConfig


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    agent = ApexDPGConfig(
        policy_torso="none",
        critic_torso="none",
        policy_hidden_sizes=(256, 256),
        critic_hidden_sizes=(256, 256),
        layer_norm=True,
        critic="quantile",
        # The time of an update grows with the square of their number.
        num_atoms=25,
        # Returns of several steps hold the noise of all of them, and the ladder begins at 1.
        n_step=1,
        batch_size=128,
        learning_rate=0.001,
        policy_learning_rate=0.0003,
        # In effect none: values of hundreds have gradients of tens.
        max_action_gradient=1e6,
        target_update_period=1,
        target_update_rate=0.005,
        exploration=NoiseConfig(noise_scale=1.0, min_noise_scale=1 / 32),
        variable_update_period=10,
        num_sgd_steps_per_step=4,
        replay=dataclasses.replace(
            ApexDPGConfig().replay,
            max_size=1_000_000,
            min_size=1_000,
            samples_per_insert=128.0,
            prefetch_batches=8,
        ),
    )
    run = RunConfig(
        num_actors=1,
        num_envs_per_actor=8,
        max_actor_steps=500_000,
        evaluation=EvaluationConfig(num_episodes=10, min_period_seconds=15.0),
    )
    environment = EnvironmentConfig(suite="control", task="cartpole:swingup", action_repeat=None)
    return ExperimentConfig(agent=agent, environment=environment, run=run)
