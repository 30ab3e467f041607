"""Figure 5: the capacity of the replay, with returns of one step and of three.

Without n-step returns a larger replay is said to help nothing (Fedus et al. 2020).
"""

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return three capacities, of which 160,000 transitions never fill the largest."""

    def make(capacity: int, n_step: int) -> Setting:
        fields = {"agent.replay.max_size": capacity, "agent.n_step": n_step}
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Capacity of the replay at equal learner steps (Figure 5)",
        settings={
            f"{capacity:,} transitions, n = {n_step}": make(capacity, n_step)
            for n_step in (3, 1)
            for capacity in (10_000, 50_000, 250_000)
        },
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 10.0,
            "run.num_envs_per_actor": 64,
            "agent.learning_rate": 0.00025,
            "agent.replay.samples_per_insert": 4.0,
        },
    )
