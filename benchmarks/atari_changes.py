"""Changes of Ape-X DQN on three games where others are ahead, and on Pong: half a million steps.

A run takes about an hour on one core.

Example:
  apex-study benchmarks/atari_changes.py --parallel=2 --workdir=runs/atari_changes
"""

from typing import Any

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study

_AS_IT_IS: dict[str, Any] = {
    "agent.target": "double",
    "agent.replay.initial_priority": "td_error",
}
_MUNCHAUSEN: dict[str, Any] = {"agent.target": "munchausen"}
_LARGEST_FIRST: dict[str, Any] = {"agent.replay.initial_priority": "max"}
# Twice as many updates of half the size, which take as long.
_SMALL_BATCHES: dict[str, Any] = {
    "agent.batch_size": 32,
    "agent.learning_rate": 0.0004,
    "agent.learning_rate_steps": 120_000,
}


def get_study() -> Study:
    """Return the changes of what the config had then; all else is as in the config."""
    changes: dict[str, dict[str, Any]] = {
        "as it is": {},
        "one step": {"agent.n_step": 1},
        "largest priority first": _LARGEST_FIRST,
        "Munchausen": _MUNCHAUSEN,
        "Munchausen, largest priority first": {**_MUNCHAUSEN, **_LARGEST_FIRST},
        "both, batches of 32": {**_MUNCHAUSEN, **_LARGEST_FIRST, **_SMALL_BATCHES},
    }
    settings = {
        name: Setting("apex_dqn_atari_single_host", {**_AS_IT_IS, **fields})
        for name, fields in changes.items()
    }
    settings["both, n from 10 to 3"] = Setting(
        "annealed_steps.py", {**_MUNCHAUSEN, **_LARGEST_FIRST}
    )
    return Study(
        title="Changes of Ape-X DQN on Atari",
        settings=settings,
        tasks=("boxing", "seaquest", "space_invaders", "pong"),
        fields={"run.max_actor_steps": 500_000, "run.evaluation.min_period_seconds": 600.0},
        x=columns.ACTOR_STEPS,
        num_seeds=1,
    )
