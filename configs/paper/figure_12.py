"""Figure 12: prioritized and uniform replay, with few and with many environments."""

from apex_agents.studies.study import Setting, Study

SAMPLES = 256  # Samples per insert and environment, as in figure_4.py.


def get_study() -> Study:
    """Return both kinds of sampling, each with two learning rates, as the paper tried two."""

    def make(number: int, sampling: str, rate: float) -> Setting:
        fields = {
            "run.num_envs_per_actor": number,
            "agent.replay.samples_per_insert": SAMPLES / number,
            "agent.learning_rate": rate,
        }
        if sampling == "uniform":
            fields["agent.replay.priority_exponent"] = 0.0
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Prioritized and uniform replay at equal learner steps (Figure 12)",
        settings={
            f"{sampling}, {number} environments, rate {rate}": make(number, sampling, rate)
            for rate in (0.00025, 0.001)
            for number in (16, 128)
            for sampling in ("prioritized", "uniform")
        },
        tasks=tuple(
            f"MinAtar/{game}-v1"
            for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
        ),
        fields={"run.max_learner_steps": 10_000, "run.evaluation.min_period_seconds": 10.0},
    )
