"""Pong in an hour on two cores: Ape-X DQN, A2C, A3C, and another library's A2C beside.

Ape-X DQN ends with a million agent steps, before the hour is over.
`benchmarks/study_peers.py` trains the A2C of Stable-Baselines3 for as long with `--cores 2`.

Example:
  apex-paper --figure=benchmarks/pong_hour.py --workdir=runs/pong_hour
"""

from apex_agents.metrics import columns
from apex_agents.sweep.study import Setting, Study


def get_study() -> Study:
    """Return the agents, each with its settings for a small machine."""
    return Study(
        title="Pong in an hour on two cores",
        settings={
            "Ape-X DQN": Setting("apex_dqn_atari_single_host", {"run.max_actor_steps": 1_000_000}),
            "A2C": Setting("a2c_atari_single_host", {}),
            "A3C": Setting("a3c_atari_single_host", {}),
        },
        tasks=("pong",),
        fields={"run.max_seconds": 3600.0, "run.evaluation.min_period_seconds": 120.0},
        x=columns.WALL_TIME_SECONDS,
        num_seeds=1,
    )
