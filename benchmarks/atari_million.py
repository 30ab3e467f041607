"""Steps per transition, learning rate and target network over a million agent steps of Breakout.

What `apex_dqn_atari_single_host` has was chosen by this study, and by the time that Pong takes.

Example:
  apex-study benchmarks/atari_million.py --parallel=2 --workdir=runs/atari_million
"""

from typing import Any

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def _settings(n_step: int, rate_steps: int | None, period: int) -> Setting:
    fields: dict[str, Any] = {
        "agent.n_step": n_step,
        "agent.learning_rate_steps": rate_steps,
        "agent.target_update_period": period,
        "agent.target": "double",
        "agent.replay.initial_priority": "td_error",
    }
    return Setting("apex_dqn_atari_single_host", fields)


def get_study() -> Study:
    """Return the settings; those of the last one are the config's."""
    return Study(
        title="A million agent steps of Breakout",
        settings={
            "n = 5, constant rate": _settings(5, None, 1_000),
            "n = 5": _settings(5, 60_000, 1_000),
            "n = 3": _settings(3, 60_000, 1_000),
            "n = 3, target network copied every 400 steps": _settings(3, 60_000, 400),
        },
        tasks=("breakout",),
        fields={"run.max_actor_steps": 1_000_000, "run.evaluation.min_period_seconds": 300.0},
        x=columns.ACTOR_STEPS,
        num_seeds=1,
    )
