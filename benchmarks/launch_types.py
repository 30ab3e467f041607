"""Measures whether a short run is faster as threads of one process than as processes.

Both kinds of a study's run, MinAtar's Breakout with 64 environments, are trained at once, each on a
core of its own, and change cores from round to round.

Example:
  python benchmarks/launch_types.py --rounds 4
"""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from measuring import Row, make_parser, ratios, report, run_and_leave, spread
from our_runs import ROOT

from apex_agents.metrics import columns
from apex_agents.plotting.curves import make_curve
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.results import score_curve

LEARNER_STEPS = 10_000
FIELDS = {
    "run.max_learner_steps": LEARNER_STEPS,
    "run.num_envs_per_actor": 64,
    "run.evaluation.min_period_seconds": 0.0,
    "run.evaluation.min_period_learner_steps": LEARNER_STEPS // 20,
    "agent.replay.samples_per_insert": 4.0,
}


def main() -> None:
    arguments = make_parser(__doc__).parse_args()
    seconds: dict[str, list[float]] = {"local_mp": [], "local_mt": []}
    returns: dict[str, list[float]] = {"local_mp": [], "local_mt": []}
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            order = dict(zip(seconds, cores[:: 1 if number % 2 else -1], strict=True))
            workdirs = {kind: pathlib.Path(folder) / f"{kind}_{number}" for kind in order}
            started = time.monotonic()
            runs = {kind: start(kind, number, core, workdirs[kind]) for kind, core in order.items()}
            while runs:
                time.sleep(0.1)
                for kind in [kind for kind, run in runs.items() if run.poll() is not None]:
                    if runs.pop(kind).returncode:
                        raise RuntimeError(f"the run as {kind} failed")
                    seconds[kind].append(time.monotonic() - started)
                    returns[kind].append(final_return(workdirs[kind]))
                    print(
                        kind, round(seconds[kind][-1], 1), round(returns[kind][-1], 2), flush=True
                    )
    rows = [
        Row(f"{kind}, from the command to its end", spread(s), "s") for kind, s in seconds.items()
    ]
    rows += [Row(f"{kind}, return in its last quarter", spread(r)) for kind, r in returns.items()]
    rows.append(Row("threads / processes", ratios(seconds["local_mt"], seconds["local_mp"])))
    report("launch_types", arguments.out, rows)


def start(kind: str, seed: int, core: int, workdir: pathlib.Path) -> subprocess.Popen:
    """Start a run on one core."""
    flags = [f"--config.{field}={value}" for field, value in FIELDS.items()]
    command = [sys.executable, str(ROOT / "launch" / "apex_dqn.py"), f"--lp_launch_type={kind}"]
    command += ["--config=apex_dqn_minatar", f"--config.run.seed={seed}", f"--workdir={workdir}"]
    pin = functools.partial(os.sched_setaffinity, 0, {core})
    output = subprocess.DEVNULL
    return subprocess.Popen([*command, *flags], stdout=output, stderr=output, preexec_fn=pin)


def final_return(workdir: pathlib.Path) -> float:
    """Return the mean return of a run's evaluations in the last quarter of its learner steps."""
    table = RunFolder(workdir).read_columns(columns.EVALUATOR)
    return score_curve(make_curve(table[columns.LEARNER_STEPS], table[columns.MEAN_RETURN]))


if __name__ == "__main__":
    run_and_leave(main)
