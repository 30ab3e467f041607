"""Pong in an hour on one core: Ape-X DQN, A2C, A3C, and another library's A2C beside.

`benchmarks/study_peers.py` trains the A2C of Stable-Baselines3 for as long. On a machine with two
cores two runs at once have one each, so that all of them see the same machine.

Example:
  apex-study benchmarks/pong_hour.py --parallel=2 --workdir=runs/pong_hour
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study

# What the config had when this was measured, before it got what does more per agent step.
_EARLIER = {
    "agent.n_step": 5,
    "agent.target_update_period": 1_000,
    "agent.learning_rate_steps": None,
    "agent.target": "double",
    "agent.replay.initial_priority": "td_error",
}
_EARLIER_A2C = {"agent.learning_rate": 7e-4, "run.num_actors": 2, "run.num_envs_per_actor": 8}


def get_study() -> Study:
    """Return the agents, each with its settings for a small machine; Ape-X DQN ends at 1M steps."""
    return Study(
        title="Pong in an hour on one core",
        settings={
            "Ape-X DQN": Setting(
                "apex_dqn_atari_single_host", {"run.max_actor_steps": 1_000_000, **_EARLIER}
            ),
            "A2C": Setting("a2c_atari_single_host", _EARLIER_A2C),
            "A3C": Setting("a3c_atari_single_host", {}),
        },
        tasks=("pong",),
        fields={"run.max_seconds": 3600.0, "run.evaluation.min_period_seconds": 120.0},
        x=columns.WALL_TIME_SECONDS,
        num_seeds=1,
    )
