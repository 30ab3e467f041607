"""Seconds from a command's start to a solved CartPole-v1: ours, and those of other libraries.

Solved means that a greedy evaluation of 20 episodes has a mean return of 475 or more. The seconds
begin with the process, imports included, and end when that evaluation is over. All run on the same
two cores, one after the other, seed by seed. A run that takes longer than the limit counts as if it
had taken just that long.

Ours evaluates at most once per second, in a process of its own; Stable-Baselines3 every 2048 agent
steps and TorchRL every 5000, in between. Their hyperparameters, in `peers/cartpole.py`, are those
that their projects publish for this task; ours, in `configs/apex_dqn_cartpole.py`, were chosen on
two such cores. `--names` says which agents run: by default Ape-X DQN and the DQNs of the others.

Needs `make .venv-peers/.installed`, and up to 45 minutes for 5 seeds.

Example:
  python benchmarks/end_to_end.py --seeds 5
  python benchmarks/end_to_end.py --names "our A2C" "Stable-Baselines3's A2C" --out runs/a2c
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from measuring import Row, at_most, make_parser, ratios, report, spread
from our_runs import ROOT, our_run
from peer_processes import peer_command, run_peer

from apex_agents.runs.csv_file import RowReader

TARGET = 475.0
OURS = "our Ape-X DQN"
OUR_AGENTS = {OURS: "apex_dqn", "our A2C": "a2c", "our A3C": "a3c"}
OTHERS = {
    "Stable-Baselines3's DQN": "sb3",
    "TorchRL's DQN": "torchrl",
    "Stable-Baselines3's A2C": "sb3_a2c",
}
RIVALS = {
    OURS: ("Stable-Baselines3's DQN", "TorchRL's DQN"),
    "our A2C": ("Stable-Baselines3's A2C",),
    "our A3C": ("Stable-Baselines3's A2C",),
}
DEFAULT = (OURS, "Stable-Baselines3's DQN", "TorchRL's DQN")
# The others notice that their time is up when an evaluation ends.
GRACE_SECONDS = 30


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, with seeds 0, 1, ...")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each run")
    names = (*OUR_AGENTS, *OTHERS)
    parser.add_argument("--names", nargs="+", choices=names, default=DEFAULT, help="what runs")
    arguments = parser.parse_args()
    peer_command("cartpole.py")  # Fails now if they are missing.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    seconds: dict[str, list[float]] = {name: [] for name in arguments.names}
    failures = []
    for seed in range(arguments.seeds):
        needed = {}
        for name in arguments.names:
            run = run_ours if name in OUR_AGENTS else run_other
            try:
                needed[name] = min(run(name, seed, arguments.limit), arguments.limit)
            except (SystemExit, subprocess.CalledProcessError) as error:
                failures.append(f"seed {seed}, {name}: {error}")
                break  # This seed is left out: ratios are those of pairs.
            print(f"seed {seed}, {name}: {needed[name]:.1f} s", flush=True)
        else:
            for name, so_far in seconds.items():
                so_far.append(needed[name])
    series = {"seconds": seconds, "limit": arguments.limit}
    if all(seconds.values()):
        report("end_to_end", arguments.out, make_rows(seconds, arguments.limit), series)
    if failures:
        raise SystemExit("\n".join(failures))


def make_rows(seconds: Mapping[str, Sequence[float]], limit: float) -> list[Row]:
    """Make the table.

    Args:
      seconds: seconds of each seed by name, the limit where it was not solved in time.
      limit: seconds that each run had.
    """
    rows = []
    for name, all_rivals in RIVALS.items():
        if name in seconds and (rivals := [rival for rival in all_rivals if rival in seconds]):
            best = min(rivals, key=lambda rival: statistics.median(seconds[rival]))
            what = f"time to 475, {name} / {best}, the best other, by seed"
            ratio = ratios(seconds[name], seconds[best])
            rows.append(at_most(what, ratio, 0.5) if name == OURS else Row(what, ratio))
    for name, seeds in seconds.items():
        num_solved = sum(one < limit for one in seeds)
        what = f"time to 475, {name} (solved {num_solved} of {len(seeds)})"
        rows.append(Row(what, spread(seeds), "s"))
    return rows


def run_ours(name: str, seed: int, limit: float) -> float:
    """Run our command; return the seconds until it had solved the task, infinity if it did not."""
    agent = OUR_AGENTS[name]
    config = ROOT / "configs" / f"{agent}_cartpole.py"
    fields = [f"--config.run.seed={seed}", f"--config.run.target_return={TARGET}"]
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder, "run")
        training = our_run(workdir, f"--config={config}", *fields, agent=agent)
        with training as run, contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(limit)
        rows = [row for row in RowReader(workdir / "logs" / "evaluator.csv").read() if row]
    if run.returncode not in (0, 130):
        raise SystemExit(f"our command failed with exit code {run.returncode}")
    return reached_at(rows, TARGET) or float("inf")


def run_other(name: str, seed: int, limit: float) -> float:
    """Run an agent of another library; return as `run_ours` does."""
    options = ["--seed", str(seed), "--limit", str(limit), "--target", str(TARGET)]
    command = peer_command("cartpole.py", OTHERS[name], *options)
    try:
        evaluations = run_peer(command, limit + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return float("inf")
    solved = (one["seconds"] for one in evaluations if one["mean_return"] >= TARGET)
    return next(solved, float("inf"))


def reached_at(rows: Sequence[Mapping[str, Any]], target: float) -> float | None:
    """Return when an evaluation first reached a return, in seconds since the start."""
    return next((row["wall_time_seconds"] for row in rows if row["mean_return"] >= target), None)


if __name__ == "__main__":
    main()
