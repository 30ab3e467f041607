"""Appendix E: the priority exponent alpha, of which 0.3 to 0.7 are said to be alike."""

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return exponents from 0, uniform sampling, to 0.9, where figure 12 has them matter most."""
    return Study(
        title="Priority exponent at equal learner steps (appendix E)",
        settings={
            f"alpha = {alpha}": Setting(
                "apex_dqn_minatar", {"agent.replay.priority_exponent": alpha}
            )
            for alpha in (0.0, 0.3, 0.6, 0.7, 0.9)
        },
        tasks=("MinAtar/Seaquest-v1",),
        fields={
            "run.max_learner_steps": 10_000,
            "run.num_envs_per_actor": 128,
            "run.evaluation.min_period_seconds": 0.0,
            "run.evaluation.min_period_learner_steps": 500,
            "agent.learning_rate": 0.001,
            "agent.replay.samples_per_insert": 2.0,
        },
    )
