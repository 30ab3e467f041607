"""Figure 3: Ape-X DPG with more environments at equal learner steps, and DDPG."""

from apex_agents.sweep.study import Setting, Study

SAMPLES = 1_024  # Samples per insert and environment.


def get_study() -> Study:
    """Return 1 to 64 environments, all with the same noise, and uniform samples of a single one."""

    def with_environments(number: int, fields: dict[str, float]) -> Setting:
        own_fields = {
            "run.num_envs_per_actor": number,
            "agent.replay.samples_per_insert": SAMPLES / number,
        }
        return Setting("apex_dpg_control_single_host", {**own_fields, **fields})

    return Study(
        title="Number of environments of Ape-X DPG at equal learner steps (Figure 3)",
        settings={
            **{f"{n} environments": with_environments(n, {}) for n in (64, 16, 4, 1)},
            "DDPG": with_environments(1, {"agent.replay.priority_exponent": 0.0}),
        },
        tasks=("cartpole:swingup", "cartpole:swingup_sparse", "walker:walk"),
        fields={
            "run.max_learner_steps": 20_000,
            "run.evaluation.min_period_seconds": 10.0,
            "environment.action_repeat": 4,
            "agent.exploration.noise_scale": 0.3,
            "agent.exploration.min_noise_scale": None,
        },
    )
