"""Appendix E: the batch size, of which larger ones up to 512 are said to help."""

from apex_agents.sweep.study import Setting, Study

NUM_TRANSITIONS = 40_000  # Added by the environments during the learner steps of a run.
NUM_LEARNER_STEPS = 10_000


def get_study() -> Study:
    """Return batches of 32 to 512 transitions, all with as many transitions to sample from."""

    def make(batch_size: int) -> Setting:
        samples_per_insert = batch_size * NUM_LEARNER_STEPS / NUM_TRANSITIONS
        fields = {
            "agent.batch_size": batch_size,
            "agent.replay.samples_per_insert": samples_per_insert,
        }
        return Setting("apex_dqn_minatar", fields)

    return Study(
        title="Batch size at equal learner steps (appendix E)",
        settings={f"batches of {size}": make(size) for size in (32, 128, 512)},
        tasks=("MinAtar/SpaceInvaders-v1",),
        fields={
            "run.max_learner_steps": NUM_LEARNER_STEPS,
            "run.num_envs_per_actor": 16,
            "agent.learning_rate": 0.00025,
            "run.evaluation.min_period_seconds": 10.0,
        },
    )
