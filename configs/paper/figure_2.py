"""Figures 2, 9 and 10: Ape-X DQN, what it was made from, A3C and A2C, in equal wall time.

On equal cores, too, if --parallel is their number: each run has one. `benchmarks/paper_peers.py`
trains another library's agents for as long on one core, and --beside shows them. --x=actor_steps
draws returns against the data, as figure 10 does. All DQNs are double and dueling.
"""

from apex_agents.metrics import columns
from apex_agents.sweep.study import Setting, Study

# Figure 12's best rate with priorities, and without.
_RATE = {"agent.learning_rate": 0.001}
# 128 of the paper's actors, and figure 12's ratio of samples and inserts.
_APEX = {**_RATE, "run.num_envs_per_actor": 128, "agent.replay.samples_per_insert": 2.0}
# One environment, whose epsilon falls from 1, as in DQN (Mnih et al. 2015), here within about 25,000
# agent steps: a learner step is done for every 8.
_ONE_ENVIRONMENT = {
    **_RATE,
    "run.num_envs_per_actor": 1,
    "agent.exploration.epsilon": 0.01,
    "agent.exploration.alpha": 0.0,
    "agent.exploration.annealing_steps": 2_500,
    "agent.n_step": 1,
}
# New transitions have the largest priority (Schaul et al. 2016).
_PRIORITIZED = {**_ONE_ENVIRONMENT, "agent.replay.initial_priority": "max"}
_UNIFORM = {**_ONE_ENVIRONMENT, "agent.replay.priority_exponent": 0.0}


def get_study() -> Study:
    """Return the agents, all with the same convolutions and a hidden layer of the same size."""
    return Study(
        title="Ape-X DQN, its predecessors, A2C and A3C (Figures 2, 9 and 10)",
        settings={
            "Ape-X DQN": Setting("apex_dqn_minatar", _APEX),
            "Prioritized DQN": Setting("apex_dqn_minatar", _PRIORITIZED),
            "DQN": Setting("apex_dqn_minatar", _UNIFORM),
            "A2C": Setting("a2c_minatar", {}),
            "A3C": Setting("a3c_minatar", {}),
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
