"""Figure 6: more environments are not only newer data, as of fewer ones added several times."""

from apex_agents.studies.study import Setting, Study

SAMPLES = 256  # Samples per insert and environment, as in figure_4.py.
CAPACITY = 10_000  # Transitions: what 64 environments add in 625 learner steps.


def get_study() -> Study:
    """Return 8 environments whose transitions are added once or 8 times, and 64 environments."""

    def make(number: int, replicas: int) -> Setting:
        fields = {
            "run.num_envs_per_actor": number,
            "agent.replay.replicas": replicas,
            "agent.replay.samples_per_insert": SAMPLES / number,
            "agent.replay.max_size": CAPACITY,
            "agent.replay.min_size": 1_000 * replicas,  # Items, of which a transition has several.
        }
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Recency of the data at equal learner steps (Figure 6)",
        settings={
            "8 environments": make(8, 1),
            "8 environments, each transition 8 times": make(8, 8),
            "64 environments": make(64, 1),
        },
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 0.0,
            "run.evaluation.min_period_learner_steps": 500,
            "agent.learning_rate": 0.00025,
        },
        num_seeds=5,
    )
