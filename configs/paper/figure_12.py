"""Figure 12: prioritized and uniform replay, with few and with many environments."""

from apex_agents.sweep.study import Setting, Study

SAMPLES = 256  # Samples per insert and environment, as in figure_4.py.


def get_study() -> Study:
    """Return both kinds of sampling, each with the learning rate of its own that the paper has."""

    def make(number: int, is_uniform: bool) -> Setting:
        fields = {
            "run.num_envs_per_actor": number,
            "agent.replay.samples_per_insert": SAMPLES / number,
        }
        if is_uniform:
            # The paper's learning rate without priorities is four times that with priorities.
            fields |= {"agent.replay.priority_exponent": 0.0, "agent.learning_rate": 0.001}
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Prioritized and uniform replay at equal learner steps (Figure 12)",
        settings={
            f"{'uniform' if is_uniform else 'prioritized'}, {n} environments": make(n, is_uniform)
            for n in (16, 128)
            for is_uniform in (False, True)
        },
        tasks=tuple(
            f"MinAtar/{game}-v1"
            for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
        ),
        fields={"run.max_learner_steps": 10_000, "run.evaluation.min_period_seconds": 10.0},
    )
