"""Gradients that are sent in float32 and in bfloat16: two asynchronous learners, equal updates.

The settings are those of `gorila.py`.

Example:
  apex-study benchmarks/gradients_bfloat16.py --workdir=runs/gradients_bfloat16
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the two types of gradients."""
    return Study(
        title="Gradients in float32 and in bfloat16",
        settings={
            name: Setting("gorila_minatar", {"run.learners.bfloat16": name == "bfloat16"})
            for name in ("float32", "bfloat16")
        },
        tasks=("MinAtar/Breakout-v1",),
        fields={
            "run.num_learners": 2,
            "run.max_actor_steps": None,
            "run.max_learner_steps": 4_000,
            "run.evaluation.min_period_seconds": 5.0,
            "agent.stream_hidden_size": 32,
            "agent.exploration.annealing_steps": 1_000,
            "agent.target_update_period": 250,
        },
        x=columns.LEARNER_STEPS,
        num_seeds=5,
    )
