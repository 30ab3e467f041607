"""Changes of Ape-X DQN on five games of MinAtar, in equal time on a core each.

What wins here is tried on Atari's games next, where a run takes an hour.

Example:
  apex-study benchmarks/minatar_changes.py --parallel=2 --workdir=runs/minatar_changes
"""

import pathlib
from typing import Any

from apex_agents.presets import execute_file
from apex_agents.studies.study import Setting, Study

_FIGURE_2 = pathlib.Path(__file__).parent.parent / "configs" / "paper" / "figure_2.py"


def get_study() -> Study:
    """Return the changes; games and time are those of figure 2."""
    figure_2 = execute_file(_FIGURE_2, Study, "get_study")
    changes: dict[str, dict[str, Any]] = {
        "as it is": {},
        "one step, 4 samples": {"agent.n_step": 1, "agent.replay.samples_per_insert": 4.0},
        "five steps": {"agent.n_step": 5},
        "Munchausen": {"agent.target": "munchausen"},
        "quantiles": {"agent.head": "quantile", "agent.num_quantiles": 32},
        "32 environments, 8 samples": {
            "run.num_envs_per_actor": 32,
            "agent.replay.samples_per_insert": 8.0,
        },
    }
    settings = {name: Setting("apex_dqn_minatar", fields) for name, fields in changes.items()}
    return figure_2._replace(title="Changes of Ape-X DQN on MinAtar", settings=settings)
