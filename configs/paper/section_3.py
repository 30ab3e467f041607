"""Section 3: priorities of new transitions from their actors, or the largest so far."""

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return both priorities of new transitions, with few and with many environments.

    With many the learner samples 0.8 transitions for each new one, as in the paper (section 4.1:
    9,700 of 12,500 per second), so that it cannot sample all of them.
    """
    return Study(
        title="Priorities of new transitions (section 3)",
        settings={
            f"{priority}, {number} environments": Setting(
                "apex_dqn_minatar",
                {
                    "run.num_envs_per_actor": number,
                    "agent.replay.samples_per_insert": samples_per_insert,
                    "agent.replay.initial_priority": priority,
                },
            )
            for number, samples_per_insert in ((16, 16.0), (128, 0.8))
            for priority in ("td_error", "max")
        },
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 0.0,
            "run.evaluation.min_period_learner_steps": 500,
            "agent.learning_rate": 0.00025,
            "agent.batch_size": 32,
        },
        num_seeds=5,
    )
