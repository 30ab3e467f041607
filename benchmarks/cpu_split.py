"""Measures whether learner and actors should keep to cores of their own: `run.cpu_split`.

Runs the command on Pong with the settings for one machine, for half a minute with every value in
turn. The actors are held back by `samples_per_insert`, so that more updates are more of both.

Example:
  python benchmarks/cpu_split.py --splits 0.25 0.5 0.75 --rounds 2
"""

import functools
import pathlib
import tempfile
import time
from collections.abc import Callable

from measuring import Row, make_parser, measure_in_turn, ratios, report, run_and_leave, spread
from our_runs import ROOT, our_run, wait_for

from apex_agents.runs.folder import RowReader

CONFIG = ROOT / "configs" / "apex_dqn_atari_single_host.py"
# The evaluator plays once, in the beginning.
SETTINGS = {
    "run.evaluation.num_episodes": "1",
    "run.evaluation.min_period_seconds": "3600",
    "agent.replay.min_size": "2000",
}
SETTLE_SECONDS, SECONDS = 20.0, 30.0
FREE = "None"


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(rounds=2)
    parser.add_argument("--splits", nargs="+", default=["0.5"], help="values besides None")
    arguments = parser.parse_args()
    measurements: dict[str, Callable[[], float]] = {
        split: functools.partial(count_updates, split) for split in (FREE, *arguments.splits)
    }
    updates = measure_in_turn(measurements, arguments.rounds)
    rows = [Row(f"updates/s, cpu_split={FREE}", spread(updates[FREE]))]
    for split in arguments.splits:
        share = ratios(updates[split], updates[FREE])
        rows.append(Row(f"updates/s, cpu_split={split}, share of that", share))
    report("cpu_split", arguments.out, rows)


def count_updates(split: str) -> float:
    """Return the updates per second of a run."""
    settings = SETTINGS if split == FREE else {**SETTINGS, "run.cpu_split": split}
    flags = [f"--config.{field}={value}" for field, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder, "run")
        with our_run(workdir, f"--config={CONFIG}", *flags) as run:
            learner = RowReader(workdir / "logs" / "learner.csv")
            wait_for(learner.read, run)
            time.sleep(SETTLE_SECONDS)
            learner.read()
            time.sleep(SECONDS)
            rows = learner.read()
    steps, seconds = [
        float(rows[-1][column]) - float(rows[0][column])
        for column in ("learner_steps", "wall_time_seconds")
    ]
    return steps / seconds


if __name__ == "__main__":
    run_and_leave(main)
