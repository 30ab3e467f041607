"""Appendix F: how fast the learner is beside the actors, at equal agent steps."""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return 1, 4 and 16 samples per insert, and what the machine gives if the ratio is free."""
    ratios: dict[str, float | None] = {
        "1 sample per insert": 1.0,
        "4 samples per insert": 4.0,
        "16 samples per insert": 16.0,
        "no limiter": None,
    }
    return Study(
        title="Samples per insert at equal agent steps (appendix F)",
        settings={
            label: Setting("apex_dqn_minatar", {"agent.replay.samples_per_insert": ratio})
            for label, ratio in ratios.items()
        },
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_actor_steps": 60_000,
            "run.num_envs_per_actor": 16,
            "run.evaluation.min_period_seconds": 10.0,
            "agent.learning_rate": 0.00025,
        },
        x=columns.ACTOR_STEPS,
    )
