"""Figure 3: Ape-X DPG with more environments at equal learner steps, and DDPG.

`benchmarks/study_peers.py` trains another library's DDPG for as many updates, one per agent step,
and --beside shows it.
"""

from apex_agents.studies.study import Setting, Study

SAMPLES = 512  # Samples per insert and environment: 4 batches per agent step of one environment.


def get_study() -> Study:
    """Return 1 to 64 environments, all with the same noise, and DDPG, which has one."""

    def with_environments(number: int, config: str = "apex_dpg_control_single_host") -> Setting:
        fields = {
            "run.num_envs_per_actor": number,
            "agent.replay.samples_per_insert": SAMPLES / number,
        }
        return Setting(config, fields)

    return Study(
        title="Number of environments of Ape-X DPG at equal learner steps (Figure 3)",
        settings={
            **{f"{n} environments": with_environments(n) for n in (64, 16, 4)},
            "1 environment": with_environments(1),
            "DDPG": with_environments(1, "ddpg_control_single_host"),
        },
        tasks=("cartpole:swingup", "cartpole:swingup_sparse", "walker:walk"),
        fields={
            "run.max_learner_steps": 10_000,
            "run.evaluation.min_period_seconds": 0.0,
            "run.evaluation.min_period_learner_steps": 1_000,
            "environment.action_repeat": 4,
            "agent.exploration.noise_scale": 0.3,
            "agent.exploration.min_noise_scale": None,
        },
    )
