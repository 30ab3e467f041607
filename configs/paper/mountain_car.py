"""Figure 7 on MountainCar, whose only reward is to get up the hill: without exploring, none does.

A return of -200 is that of an episode that never got there.
"""

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the ways of exploring of figure_7.py, with 16 environments."""
    explorations: dict[str, dict[str, float]] = {
        "ladder": {},
        "6 epsilons": {"num_distinct_epsilons": 6},
        "epsilon 0.4": {"alpha": 0.0},
        "epsilon 0.01": {"epsilon": 0.01, "alpha": 0.0},
        "annealed to 0.01": {"epsilon": 0.01, "annealing_steps": 2_500},
    }
    ladder = {"epsilon": 0.4, "alpha": 7.0}
    return Study(
        title="Exploration on MountainCar at equal learner steps (Figure 7)",
        settings={
            label: Setting(
                "apex_dqn_cartpole",
                {f"agent.exploration.{name}": value for name, value in {**ladder, **own}.items()},
            )
            for label, own in explorations.items()
        },
        tasks=("MountainCar-v0",),
        fields={
            "agent.head": "dueling",
            "agent.learning_rate": 0.001,
            "run.num_envs_per_actor": 16,
            "run.target_return": None,
            "run.max_learner_steps": 20_000,
            "run.evaluation.min_period_seconds": 5.0,
        },
        num_seeds=5,
    )
