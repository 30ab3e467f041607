"""Seconds from a command's start to a solved CartPole-v1: ours, and the DQN of other libraries.

Solved means that a greedy evaluation of 20 episodes has a mean return of 475 or more. The seconds
begin with the process, imports included, and end when that evaluation is over. All run on the same
two cores, one after the other, seed by seed. A run that takes longer than the limit counts as if it
had taken just that long.

Ours evaluates at most once per second, in a process of its own; Stable-Baselines3 every 2048 agent
steps and TorchRL every 5000, in between. Their hyperparameters, in `peers/cartpole.py`, are those
that their projects publish for this task; ours, in `configs/apex_dqn_cartpole.py`, were chosen on
two such cores.

Needs `make .venv-peers/.installed`, and up to 45 minutes for 5 seeds.

Example:
  python benchmarks/end_to_end.py --seeds 5
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from measuring import Row, at_most, make_parser, ratios, report, spread
from our_runs import COMMAND, ROOT
from peer_processes import peer_command
from seeds import reached_at, read_rows

TARGET = 475.0
OURS = "ours"
OTHERS = {"Stable-Baselines3": "sb3", "TorchRL": "torchrl"}
# A run notices the end of its time when an evaluation is over.
GRACE_SECONDS = 30


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, with seeds 0, 1, ...")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each run")
    parser.add_argument("--others", nargs="+", choices=OTHERS, default=list(OTHERS))
    arguments = parser.parse_args()
    peer_command("cartpole.py")  # Says now if they are missing.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    seconds: dict[str, list[float | None]] = {name: [] for name in (OURS, *arguments.others)}
    for seed in range(arguments.seeds):
        for name, so_far in seconds.items():
            if name == OURS:
                so_far.append(run_ours(seed, arguments.limit))
            else:
                so_far.append(run_other(OTHERS[name], seed, arguments.limit))
            print(f"seed {seed}, {name}: {_show(so_far[-1])}", flush=True)
    counted = count(seconds, arguments.limit)
    series = {"seconds": counted, "limit": arguments.limit}
    report("end_to_end", arguments.out, make_rows(seconds, counted), series)


def count(seconds: Mapping[str, Sequence[float | None]], limit: float) -> dict[str, list[float]]:
    """Let seeds that were not solved in time count as the limit."""
    return {
        name: [limit if one is None else one for one in seeds] for name, seeds in seconds.items()
    }


def make_rows(
    seconds: Mapping[str, Sequence[float | None]], counted: Mapping[str, Sequence[float]]
) -> list[Row]:
    """Make the table.

    Args:
      seconds: of each seed, ours and others by name; None where it was not solved in time.
      counted: the same as `count` returns them.
    """
    others = [name for name in seconds if name != OURS]
    best = min(others, key=lambda name: statistics.median(counted[name]))
    ratio = ratios(counted[OURS], counted[best])
    rows = [at_most(f"time to 475, ours / {best}, the best other, by seed", ratio, 0.5)]
    for name, seeds in seconds.items():
        num_solved = sum(one is not None for one in seeds)
        what = f"time to 475, {name} (solved {num_solved} of {len(seeds)})"
        rows.append(Row(what, spread(counted[name]), "s"))
    return rows


def run_ours(seed: int, limit: float) -> float | None:
    """Run our command; return the seconds after which it had solved the task, or None."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            str(COMMAND),
            "--lp_launch_type=local_mp",
            f"--config={ROOT / 'configs' / 'apex_dqn_cartpole.py'}",
            f"--workdir={folder}/run",
            f"--config.run.seed={seed}",
            f"--config.run.target_return={TARGET}",
        ]
        run_until(command, limit)
        return read_ours(pathlib.Path(folder, "run"), limit)


def read_ours(workdir: pathlib.Path, limit: float) -> float | None:
    """Return when the evaluator of a run folder first reached the target, if it did in time."""
    return _in_time(reached_at(read_rows(workdir / "logs/evaluator.csv"), TARGET), limit)


def run_other(library: str, seed: int, limit: float) -> float | None:
    """Run the DQN of another library; return as `run_ours` does."""
    options = ["--seed", str(seed), "--limit", str(limit), "--target", str(TARGET)]
    command = peer_command("cartpole.py", library, *options)
    return read_other(run_until(command, limit + GRACE_SECONDS), limit)


def read_other(output: str, limit: float) -> float | None:
    """Return when `peers/cartpole.py`, which printed this, reached the target; or None."""
    evaluations = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    solved = (one["seconds"] for one in evaluations if one["mean_return"] >= TARGET)
    return _in_time(next(solved, None), limit)


def run_until(command: Sequence[str], limit: float) -> str:
    """Run a command, end it as Ctrl-C does when its time is up, and return its output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                output, _ = process.communicate(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    if process.returncode not in (0, 128 + signal.SIGINT, -signal.SIGINT):
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return output


def _in_time(seconds: float | None, limit: float) -> float | None:
    return seconds if seconds is not None and seconds <= limit else None


def _show(seconds: float | None) -> str:
    return "not solved in time" if seconds is None else f"{seconds:.1f} s"


if __name__ == "__main__":
    main()
