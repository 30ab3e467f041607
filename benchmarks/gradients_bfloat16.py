"""Gradients that are sent in float32 and in bfloat16: two asynchronous learners, equal updates.

Example:
  apex-study benchmarks/gradients_bfloat16.py --workdir=runs/gradients_bfloat16
"""

import gorila

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the settings of `gorila` on its first game, with two types of gradients."""
    study = gorila.get_study()
    two = study.settings["2 asynchronous learners"]
    return study._replace(
        title="Gradients in float32 and in bfloat16",
        settings={
            name: Setting(two.config, {**two.fields, "run.learners.bfloat16": name == "bfloat16"})
            for name in ("float32", "bfloat16")
        },
        tasks=study.tasks[:1],
        num_seeds=5,
    )
