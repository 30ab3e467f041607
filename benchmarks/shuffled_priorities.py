"""The prioritized agents of figure 12 with priorities that belong to other transitions.

The learner's priorities are shuffled within each batch (`examples/own_update.py`), and new
transitions have the largest one so far, since those of the actors would be right. If the figure
shows what priorities are worth, these agents are no better than with uniform samples. With
`--beside=FILE`, `apex-study 12` draws the evaluations of this study, too.

Example:
  apex-study benchmarks/shuffled_priorities.py --seeds=2 --workdir=runs/paper/shuffled
"""

import pathlib
import sys

from apex_agents.presets import execute_file
from apex_agents.studies.study import Setting, Study

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURE = ROOT / "configs" / "paper" / "figure_12.py"
SHUFFLED = {
    "agent.builder": "own_update:ShuffledPrioritiesBuilder",
    "agent.replay.initial_priority": "max",
}

sys.path.append(str(ROOT / "examples"))


def get_study() -> Study:
    """Return the study of figure 12 with these agents in place of its own."""
    study = execute_file(FIGURE, Study, "get_study")
    settings = {
        label.replace("prioritized", "shuffled"): Setting(
            setting.config, {**setting.fields, **SHUFFLED}
        )
        for label, setting in study.settings.items()
        if label.startswith("prioritized") and label.endswith("rate 0.00025")
    }
    return study._replace(title="Shuffled priorities", settings=settings)
