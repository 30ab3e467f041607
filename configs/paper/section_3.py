"""Section 3: priorities of new transitions from their actors, or the largest so far."""

from apex_agents.sweep.study import Setting, Study

SAMPLES = 256  # Samples per insert and environment, as in figure_4.py.


def get_study() -> Study:
    """Return both priorities of new transitions, with few and with many environments."""
    return Study(
        title="Priorities of new transitions (section 3)",
        settings={
            f"{priority}, {number} environments": Setting(
                "apex_dqn_minatar",
                {
                    "run.num_envs_per_actor": number,
                    "agent.replay.samples_per_insert": SAMPLES / number,
                    "agent.replay.initial_priority": priority,
                },
            )
            for number in (16, 128)
            for priority in ("td_error", "max")
        },
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 10.0,
            "agent.learning_rate": 0.00025,
        },
    )
