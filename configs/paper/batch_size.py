"""Appendix E: the batch size, of which larger ones up to 512 help "when using many actors"."""

from apex_agents.studies.study import Setting, Study

INSERTS = 32  # Transitions added per learner step.


def get_study() -> Study:
    """Return batches of 32 to 512 transitions, all with as many transitions to sample from."""

    def make(batch_size: int) -> Setting:
        fields = {
            "agent.batch_size": batch_size,
            "agent.replay.samples_per_insert": batch_size / INSERTS,
        }
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Batch size at equal learner steps (appendix E)",
        settings={f"batches of {size}": make(size) for size in (32, 128, 512)},
        tasks=("MinAtar/SpaceInvaders-v1",),
        fields={
            "run.max_learner_steps": 10_000,
            "run.num_envs_per_actor": 128,
            "run.evaluation.min_period_seconds": 0.0,
            "run.evaluation.min_period_learner_steps": 500,
            "agent.learning_rate": 0.00025,
        },
    )
