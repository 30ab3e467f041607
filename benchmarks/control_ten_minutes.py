"""Four tasks of the control suite in ten minutes on one core each.

`benchmarks/study_peers.py` trains agents of other libraries for as long on one core, with the same
action repeats.

Example:
  apex-study benchmarks/control_ten_minutes.py --parallel=2 --workdir=runs/control_ten_minutes
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return our agent, which has the same settings on all tasks."""
    return Study(
        title="Ten minutes of the control suite on one core",
        settings={"Ape-X DPG": Setting("apex_dpg_control_single_host", {})},
        tasks=("finger:spin", "walker:walk", "cheetah:run", "hopper:stand"),
        fields={"run.max_seconds": 600.0, "run.evaluation.min_period_seconds": 60.0},
        x=columns.WALL_TIME_SECONDS,
        num_seeds=1,
    )
