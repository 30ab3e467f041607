"""Four games of Atari in half an hour on one core: ours, and other libraries' beside.

`benchmarks/study_peers.py` trains agents of other libraries for as long on one core.

Example:
  apex-study benchmarks/atari_half_hour.py --parallel=2 --workdir=runs/half_hour
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the agents; the settings of Ape-X DQN were chosen on the first game."""
    return Study(
        title="Half an hour of Atari on one core",
        settings={
            # Its learning rate falls within half an hour, not within a million agent steps.
            "Ape-X DQN": Setting(
                "apex_dqn_atari_single_host", {"agent.learning_rate_steps": 30_000}
            ),
            "A2C": Setting("a2c_atari_single_host", {}),
        },
        tasks=("breakout", "space_invaders", "boxing", "seaquest"),
        fields={"run.max_seconds": 1800.0, "run.evaluation.min_period_seconds": 120.0},
        x=columns.WALL_TIME_SECONDS,
        num_seeds=1,
    )
