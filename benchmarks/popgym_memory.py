"""Ten tasks of POPGym: R2D2 beside the same agent without a core, five minutes on a core each.

Example:
  apex-study benchmarks/popgym_memory.py --parallel=2 --workdir=runs/popgym_memory
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study

_TASKS = (
    "RepeatFirstEasy",
    "RepeatPreviousEasy",
    "AutoencodeEasy",
    "CountRecallEasy",
    "PositionOnlyCartPoleEasy",
    "VelocityOnlyCartpoleEasy",
    "NoisyPositionOnlyCartPoleEasy",
    "MultiarmedBanditEasy",
    "HigherLowerEasy",
    "ConcentrationEasy",
)


def get_study() -> Study:
    """Return the two agents on all tasks."""
    return Study(
        title="POPGym in five minutes on a core",
        settings={
            "R2D2": Setting("r2d2_popgym", {}),
            "without a core": Setting("r2d2_popgym", {"agent.core": "none"}),
        },
        tasks=tuple(f"popgym-{task}-v0" for task in _TASKS),
        fields={"run.max_actor_steps": None, "run.max_seconds": 300.0},
        x=columns.WALL_TIME_SECONDS,
    )
