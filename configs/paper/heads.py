"""Beside the paper: values or quantiles of the return (Dabney et al. 2018), at equal steps."""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the dueling head with RMSProp, as in the paper, and the quantile head with Adam."""
    quantile = {
        "agent.head": "quantile",
        "agent.optimizer": "adam",
    }
    return Study(
        title="Values and quantiles of the return, 200,000 agent steps",
        settings={
            "dueling with RMSProp": Setting("apex_dqn_minatar", {}),
            "quantile with Adam": Setting("apex_dqn_minatar", quantile),
        },
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1", "MinAtar/Asterix-v1"),
        fields={
            "run.max_actor_steps": 200_000,
            "run.num_envs_per_actor": 16,
            "agent.learning_rate": 0.00025,
            "agent.replay.samples_per_insert": 8.0,
        },
        x=columns.ACTOR_STEPS,
    )
