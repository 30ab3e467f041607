r"""Lets CartPole train for long, kills nodes at random if asked to, and watches what that does.

Examples:
  python benchmarks/soak.py --minutes 30              # open files, threads and memory of every node
  python benchmarks/soak.py --minutes 30 --kills 200  # kill -9 of a random node every 9 s

Exit code 1 if a promise of the README's section on reliability did not hold.
"""

import argparse
import collections
import contextlib
import csv
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import psutil

from apex_agents.runs.workdir import NODES_FILE

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES = ("replay", "learner", "evaluator", "actor_0")
TARGET_RETURN = 475.0
SAMPLE_PERIOD_SECONDS = 60.0


class Run:
    """A training of CartPole that does not end by itself."""

    def __init__(self, workdir: pathlib.Path):
        self.workdir = workdir
        self.nodes_file = workdir / NODES_FILE
        self.evaluator_csv = workdir / "logs" / "evaluator.csv"
        self.command = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "launch" / "apex_dqn.py"),
                "--lp_launch_type=local_mp",
                f"--workdir={workdir}",
                "--config.run.target_return=1000",
                "--config.run.max_actor_steps=1000000000",
                "--config.run.checkpoint_period_seconds=5",
                "--config.run.max_restarts=1000",
                "--config.run.restart_window_seconds=20",
            ],
            start_new_session=True,
        )

    def nodes(self) -> dict[str, psutil.Process]:
        """Find the processes of the nodes that live."""
        with contextlib.suppress(FileNotFoundError):
            nodes = json.loads(self.nodes_file.read_text())
            children = {p.pid: p for p in psutil.Process(self.command.pid).children()}
            return {
                name: children[node["pid"]]
                for name, node in nodes.items()
                if node["pid"] in children
            }
        return {}

    def evaluations(self) -> list[dict[str, str]]:
        """Read the evaluator's rows."""
        with contextlib.suppress(FileNotFoundError), self.evaluator_csv.open() as file:
            return list(csv.DictReader(file))
        return []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the run")
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of a random node, so often")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of nodes")
    parser.add_argument("--workdir", help="folder of the run; a temporary one by default")
    args = parser.parse_args()
    workdir = pathlib.Path(args.workdir or tempfile.mkdtemp(prefix="soak-"))
    run = Run(workdir)
    try:
        return watch(run, args)
    finally:
        if run.command.poll() is None:
            run.command.kill()


def watch(run: Run, args: argparse.Namespace) -> int:
    rng = random.Random(args.seed)
    started = time.monotonic()
    end = started + 60 * args.minutes
    kill_period = 60 * args.minutes / (args.kills + 1) if args.kills else float("inf")
    next_kill = started + kill_period
    next_sample = started + SAMPLE_PERIOD_SECONDS
    kills: collections.Counter[str] = collections.Counter()
    kills_before_target = None
    usage: dict[str, list[tuple[int, int, int]]] = {}
    rows: list[dict[str, str]] = []
    problems = []
    while time.monotonic() < end or sum(kills.values()) < args.kills:
        time.sleep(0.5)
        if run.command.poll() is not None:
            problems.append(f"the run ended by itself with exit code {run.command.returncode}")
            break
        if time.monotonic() >= next_kill and sum(kills.values()) < args.kills:
            kills.update(kill_one(run, rng))
            next_kill = time.monotonic() + kill_period
        if time.monotonic() >= next_sample:
            measure(run, usage)
            next_sample += SAMPLE_PERIOD_SECONDS
        rows_before, rows = rows, run.evaluations()
        if rows[: len(rows_before)] != rows_before:
            problems.append(f"evaluator's rows {rows_before} became {rows}")
        reached = any(float(row["mean_return"]) >= TARGET_RETURN for row in rows)
        if reached and kills_before_target is None:
            kills_before_target = sum(kills.values())
    seconds = time.monotonic() - started
    nodes = run.nodes()
    exit_code = run.command.poll()
    if exit_code is None:
        run.command.send_signal(signal.SIGTERM)
        exit_code = run.command.wait(120)
    orphans = [process for process in nodes.values() if process.is_running()]

    steps = [float(row["learner_steps"]) for row in rows]
    best = max((float(row["mean_return"]) for row in rows), default=float("nan"))
    if exit_code != 143:
        problems.append(f"exit code {exit_code} instead of 143")
    if orphans:
        problems.append(f"still alive: {orphans}")
    if steps != sorted(set(steps)):
        problems.append("a row of the evaluator was doubled")
    if not best >= TARGET_RETURN:
        problems.append(f"the best evaluation is {best}, not {TARGET_RETURN}")
    report(seconds, kills, kills_before_target, rows, usage)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


def kill_one(run: Run, rng: random.Random) -> list[str]:
    """Kill a node that lives; return its kind."""
    name = rng.choice(NODES)
    process = run.nodes().get(name)
    if process is None:  # It waits for its restart.
        return []
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    return [name]


def measure(run: Run, usage: dict[str, list[tuple[int, int, int]]]) -> None:
    processes = {"launcher": psutil.Process(run.command.pid), **run.nodes()}
    for name, process in processes.items():
        with contextlib.suppress(psutil.Error):
            files, threads = process.num_fds(), process.num_threads()
            usage.setdefault(name, []).append((files, threads, process.memory_info().rss >> 20))


def report(
    seconds: float,
    kills: collections.Counter[str],
    kills_before_target: int | None,
    rows: list[dict[str, str]],
    usage: dict[str, list[tuple[int, int, int]]],
) -> None:
    print(f"\n{seconds / 60:.1f} minutes, {sum(kills.values())} kills: {dict(kills)}")
    returns = [float(row["mean_return"]) for row in rows]
    solved = sum(value >= TARGET_RETURN for value in returns)
    best = max(returns, default=0)
    print(f"{len(rows)} evaluations, {solved} of them >= {TARGET_RETURN:g}, best {best}")
    if rows:
        print(f"learner steps {rows[-1]['learner_steps']}, actor steps {rows[-1]['actor_steps']}")
    if kills_before_target is not None:
        print(f"target first reached after {kills_before_target} kills")
    print(f"{'':10} {'open files':>24} {'threads':>24} {'memory in MB':>24}")
    for name, samples in usage.items():
        cells = []
        for values in zip(*samples, strict=True):
            cells.append(f"{values[0]} -> {values[-1]} (max {max(values)})")
        print(f"{name:10} " + " ".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
