"""Time from a command's start to a solved CartPole-v1: ours, and those of other libraries.

Solved means that a greedy evaluation of 20 episodes has a mean return of 475 or more. The seconds
begin with the process, imports included, and end when that evaluation is over. All run on the same
two cores, one after the other, seed by seed. A run that takes longer than the limit counts as if it
had taken just that long.

Ours evaluates at most once per second, in a process of its own; Stable-Baselines3 every 2048 agent
steps and TorchRL every 5000, in between. Their hyperparameters, in `peers/cartpole.py`, are those
that their projects publish for this task; ours, in `configs/*_cartpole.py`, were chosen on two such
cores. `--names` says which agents run: by default Ape-X DQN and the DQNs of the others; `memory`
stands for those that see no velocities. How long their processes take to import TensorFlow, and
Stable-Baselines3 with PyTorch, is measured with every seed.

Needs `make .venv-peers/.installed`, and up to 45 minutes for 5 seeds.

Example:
  python benchmarks/end_to_end.py --seeds 5
  python benchmarks/end_to_end.py --names "our A2C" "Stable-Baselines3's A2C" --out runs/a2c
  python benchmarks/end_to_end.py --names memory --limit 180
"""

import contextlib
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from measuring import Row, at_most, make_parser, ratios, report, spread
from our_runs import ROOT, our_run
from peer_processes import PEER_PYTHON, peer_command, run_peer

from apex_agents.runs.csv_file import RowReader

TARGET = 475.0
OURS, R2D2 = "our Ape-X DQN", "our R2D2, positions only"
_POSITIONS_ONLY = (
    "--config.environment.suite=function",
    "--config.environment.task=apex_agents.environments.toy:PositionOnlyCartPole",
)
# Names of agents, and flags beside those of every run.
OUR_AGENTS: dict[str, tuple[str, ...]] = {
    OURS: ("apex_dqn",),
    "our A2C": ("a2c",),
    "our A3C": ("a3c",),
    R2D2: ("r2d2",),
    "our Ape-X DQN, positions only": ("apex_dqn", *_POSITIONS_ONLY),
    "our Ape-X DQN, a stack of 4 positions": (
        "apex_dqn",
        *_POSITIONS_ONLY,
        "--config.environment.kwargs.num_stacked=4",
    ),
}
OTHERS = {
    "Stable-Baselines3's DQN": "sb3",
    "TorchRL's DQN": "torchrl",
    "Stable-Baselines3's A2C": "sb3_a2c",
    "sb3-contrib's RecurrentPPO, positions only": "sb3_recurrent_ppo",
}
RIVALS = {
    OURS: ("Stable-Baselines3's DQN", "TorchRL's DQN"),
    "our A2C": ("Stable-Baselines3's A2C",),
    "our A3C": ("Stable-Baselines3's A2C",),
    R2D2: ("sb3-contrib's RecurrentPPO, positions only",),
}
DEFAULT = (OURS, "Stable-Baselines3's DQN", "TorchRL's DQN")
MEMORY = tuple(name for name in (*OUR_AGENTS, *OTHERS) if "positions" in name)
# A process and what it imports before it can do anything else.
IMPORTS: dict[str, Sequence[str | pathlib.Path]] = {
    "import tensorflow": (sys.executable, "-c", "import tensorflow"),
    "import stable_baselines3": (PEER_PYTHON, "-c", "import stable_baselines3"),
}
# The others notice that their time is up when an evaluation ends.
GRACE_SECONDS = 30


class Solved(NamedTuple):
    """When a run had solved the task; infinity if it did not.

    Attributes:
      seconds: seconds since the start of the process.
      agent_steps: agent steps of training.
    """

    seconds: float = math.inf
    agent_steps: float = math.inf


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, with seeds 0, 1, ...")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each run")
    names = (*OUR_AGENTS, *OTHERS)
    choices = (*names, "memory")
    parser.add_argument("--names", nargs="+", choices=choices, default=DEFAULT, help="what runs")
    arguments = parser.parse_args()
    if arguments.names == ["memory"]:
        arguments.names = MEMORY
    peer_command("cartpole.py")  # Fails now if they are missing.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    solved: dict[str, list[Solved]] = {name: [] for name in arguments.names}
    imports: dict[str, list[float]] = {name: [] for name in IMPORTS}
    failures = []
    for seed in range(arguments.seeds):
        needed = {}
        for name in arguments.names:
            run = run_ours if name in OUR_AGENTS else run_other
            try:
                needed[name] = run(name, seed, arguments.limit)
            except (SystemExit, subprocess.CalledProcessError) as error:
                failures.append(f"seed {seed}, {name}: {error}")
                break  # This seed is left out: ratios are those of pairs.
            time_needed = "{:.1f} s, {:,.0f} agent steps".format(*needed[name])
            print(f"seed {seed}, {name}: {time_needed}", flush=True)
        else:
            for name, so_far in solved.items():
                so_far.append(needed[name])
            for name, command in IMPORTS.items():
                imports[name].append(time_process(command))
    if all(solved.values()):
        limit = arguments.limit
        seconds = {name: [min(run.seconds, limit) for run in runs] for name, runs in solved.items()}
        rows = [*make_rows(seconds, limit), *make_step_rows(solved)]
        rows += [
            Row(f"{name}, in a new process", spread(took), "s") for name, took in imports.items()
        ]
        report("end_to_end", arguments.out, rows, {"seconds": seconds, "limit": limit})
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


def make_step_rows(solved: Mapping[str, Sequence[Solved]]) -> list[Row]:
    """Make the rows of the agent steps of the runs that solved the task, by name."""
    steps = {
        name: [run.agent_steps for run in runs if math.isfinite(run.agent_steps)]
        for name, runs in solved.items()
    }
    return [
        Row(f"agent steps to 475, {name}", spread(found), "steps")
        for name, found in steps.items()
        if found
    ]


def time_process(command: Sequence[str | pathlib.Path]) -> float:
    """Return how many seconds a command takes."""
    begin = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def run_ours(name: str, seed: int, limit: float) -> Solved:
    """Run our command, and return when it had solved the task."""
    agent, *flags = OUR_AGENTS[name]
    config = ROOT / "configs" / f"{agent}_cartpole.py"
    fields = [*flags, f"--config.run.seed={seed}", f"--config.run.target_return={TARGET}"]
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder, "run")
        training = our_run(workdir, f"--config={config}", *fields, agent=agent)
        with training as run, contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(limit)
        rows = [row for row in RowReader(workdir / "logs" / "evaluator.csv").read() if row]
    if run.returncode not in (0, 130):
        raise SystemExit(f"our command failed with exit code {run.returncode}")
    return solved_at(rows, "wall_time_seconds", "actor_steps")


def run_other(name: str, seed: int, limit: float) -> Solved:
    """Run an agent of another library; return as `run_ours` does."""
    options = ["--seed", str(seed), "--limit", str(limit), "--target", str(TARGET)]
    command = peer_command("cartpole.py", OTHERS[name], *options)
    try:
        evaluations = run_peer(command, limit + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return Solved()
    return solved_at(evaluations, "seconds", "agent_steps")


def solved_at(rows: Iterable[Mapping[str, Any]], seconds: str, steps: str) -> Solved:
    """Return when an evaluation first reached the target, given the names of two columns."""
    found = (Solved(row[seconds], row[steps]) for row in rows if row["mean_return"] >= TARGET)
    return next(found, Solved())


if __name__ == "__main__":
    main()
