"""Appendix D: which transitions leave a full replay, of Ape-X DPG: "remains to be seen" there."""

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the oldest transitions first, and those of low priorities, with two capacities."""

    def make(policy: str, capacity: int) -> Setting:
        fields = {"agent.replay.eviction_policy": policy, "agent.replay.max_size": capacity}
        return Setting("apex_dpg_control_single_host", fields)

    return Study(
        title="Transitions that leave the replay of Ape-X DPG (appendix D)",
        settings={
            f"{label}, {capacity:,} transitions": make(policy, capacity)
            for capacity in (5_000, 20_000)
            for label, policy in (("oldest first", "fifo"), ("p^-0.4", "prioritized"))
        },
        tasks=("cartpole:swingup", "walker:walk"),
        # Four transitions are added per learner step: 60,000 in all.
        fields={
            "run.max_learner_steps": 15_000,
            "run.evaluation.min_period_seconds": 0.0,
            "run.evaluation.min_period_learner_steps": 1_000,
            "environment.action_repeat": 4,
            "agent.replay.samples_per_insert": 32.0,
        },
    )
