"""Figure 4: returns rise with the number of environments, at equal learner steps."""

from apex_agents.studies.study import Setting, Study

# Samples per insert and environment: twice as many environments give twice as many transitions.
SAMPLES = 256


def get_study() -> Study:
    """Return 4 to 256 environments, which the paper calls actors (8 to 256)."""

    def with_environments(number: int) -> Setting:
        fields = {
            "run.num_envs_per_actor": number,
            "agent.replay.samples_per_insert": SAMPLES / number,
        }
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Number of environments at equal learner steps (Figure 4)",
        settings={f"{n} environments": with_environments(n) for n in (4, 16, 64, 256)},
        tasks=("MinAtar/Asterix-v1", "MinAtar/Seaquest-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 10.0,
            "agent.learning_rate": 0.00025,
        },
    )
