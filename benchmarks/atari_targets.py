"""Steps per transition, copies of the target network and samples per insert: a study on two games.

Runs have equal agent steps. With 8 samples per insert a run does twice the learner steps, and takes
about twice the time.

Example:
  apex-paper --figure=benchmarks/atari_targets.py --parallel=2 --workdir=runs/atari_targets
"""

from apex_agents.metrics import columns
from apex_agents.sweep.study import Setting, Study


def get_study() -> Study:
    """Return the settings, compared on the two games that settings may be chosen on."""
    name = "apex_dqn_atari_single_host"
    n, period = {"agent.n_step": 3}, {"agent.target_update_period": 500}
    return Study(
        title="Half a million agent steps of Pong and Breakout",
        settings={
            "as it is": Setting(name, {}),
            "n = 3": Setting(name, n),
            "target network copied every 500 steps": Setting(name, period),
            "both": Setting(name, n | period),
            "both, 8 samples per insert": Setting(
                name, n | period | {"agent.replay.samples_per_insert": 8.0}
            ),
        },
        tasks=("pong", "breakout"),
        fields={
            "run.max_actor_steps": 500_000,
            "run.evaluation.min_period_learner_steps": 2_500,
            "run.evaluation.min_period_seconds": 0.0,
        },
        x=columns.ACTOR_STEPS,
        num_seeds=1,
    )
