"""Figure 7: a ladder of epsilons, six of them, a single one, and one that is annealed."""

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return different ways of exploring, all with 16 environments."""
    explorations: dict[str, dict[str, float]] = {
        "ladder": {},
        "6 epsilons": {"num_distinct_epsilons": 6},
        "epsilon 0.4": {"alpha": 0.0},
        "epsilon 0.01": {"epsilon": 0.01, "alpha": 0.0},
        "annealed to 0.01": {"epsilon": 0.01, "annealing_steps": 2_500},
    }
    return Study(
        title="Exploration at equal learner steps (Figure 7)",
        settings={
            label: Setting(
                "apex_dqn_minatar",
                {f"agent.exploration.{name}": value for name, value in fields.items()},
            )
            for label, fields in explorations.items()
        },
        tasks=("MinAtar/Freeway-v1", "MinAtar/Breakout-v1"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 10.0,
            "run.num_envs_per_actor": 16,
            "agent.replay.samples_per_insert": 8.0,
            "agent.learning_rate": 0.00025,
        },
    )
