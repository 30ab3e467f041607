"""Figures 2, 9 and 10: Ape-X DQN, what it was made from, A3C and A2C, in equal wall time.

On equal cores, too, if --parallel is their number: each run has one. `benchmarks/study_peers.py`
trains another library's agents for as long on one core, and --beside shows them. --x=actor_steps
draws returns against the data, as figure 10 does. All DQNs are double and dueling.
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the agents, all with the same convolutions and a hidden layer of the same size."""
    return Study(
        title="Ape-X DQN, its predecessors, A2C and A3C (Figures 2, 9 and 10)",
        settings={
            "Ape-X DQN": Setting("apex_dqn_minatar", {}),
            "Prioritized DQN": Setting("prioritized_dqn_minatar", {}),
            "DQN": Setting("dqn_minatar", {}),
            # Its learning rate falls within about as many updates as there are, A3C's in twice
            # as many.
            "A2C": Setting("a2c_minatar", {"agent.learning_rate_steps": 10_000}),
            "A3C": Setting("a3c_minatar", {"agent.learning_rate_steps": 20_000}),
        },
        tasks=tuple(
            f"MinAtar/{game}-v1"
            for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
        ),
        fields={
            "run.max_actor_steps": None,
            "run.max_seconds": 90.0,
            "run.evaluation.min_period_seconds": 15.0,
        },
        x=columns.WALL_TIME_SECONDS,
    )
