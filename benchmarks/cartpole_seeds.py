"""How fast, and how surely, CartPole-v1 is solved and stays solved.

Runs the command of `make train` once per seed, without its target, so that it goes on after the
evaluator's mean return over 20 episodes has reached 475. Times count from the first learner step.

  python benchmarks/cartpole_seeds.py --seeds 10 --hold_seconds 60
"""

import argparse
import csv
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = 475.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="runs, with seeds 0, 1, ...")
    parser.add_argument("--hold_seconds", type=float, default=60.0, help="watched after solving")
    parser.add_argument("--give_up_seconds", type=float, default=180.0)
    parser.add_argument("flags", nargs="*", help="further flags of launch/apex_dqn.py, after --")
    arguments = parser.parse_args()
    solve_seconds = []
    print(f"{'seed':>4} {'first step':>10} {'solved':>8} {'steps':>7} {'held':>12} {'lowest':>7}")
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            workdir = pathlib.Path(folder, "run")
            _run(workdir, seed, arguments)
            solve_seconds.append(_report(workdir, seed, arguments.hold_seconds))
    solved = sorted(seconds for seconds in solve_seconds if seconds is not None)
    within = sum(seconds <= 60 for seconds in solved)
    print(f"solved within 60 s of the first learner step: {within} of {arguments.seeds}")
    if solved:
        median, slowest = statistics.median(solved), solved[-1]
        print(f"seconds to solve: median {median:.0f}, slowest {slowest:.0f}")
    print(f"not solved within {arguments.give_up_seconds:.0f} s: {arguments.seeds - len(solved)}")


def _run(workdir: pathlib.Path, seed: int, arguments: argparse.Namespace) -> None:
    """Run until the seed has been watched long enough, then stop it as Ctrl-C does."""
    command = [sys.executable, str(ROOT / "launch/apex_dqn.py"), "--lp_launch_type=local_mp"]
    command += [f"--workdir={workdir}", f"--config.run.seed={seed}"]
    command += ["--config.run.target_return=1e9", *arguments.flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    while process.poll() is None:
        time.sleep(0.5)
        rows = _read(workdir / "logs/evaluator.csv")
        learner = _read(workdir / "logs/learner.csv")
        if not rows or not learner:
            continue
        first, now = _seconds(learner[0]), _seconds(rows[-1])
        solved = _solved_at(rows)
        if solved is not None and now >= solved + arguments.hold_seconds:
            break
        if solved is None and now >= first + arguments.give_up_seconds:
            break
    process.send_signal(signal.SIGINT)
    process.wait()


def _report(workdir: pathlib.Path, seed: int, hold_seconds: float) -> float | None:
    rows = _read(workdir / "logs/evaluator.csv")
    learner = _read(workdir / "logs/learner.csv")
    if not learner:
        print(f"{seed:>4} ended before the first learner step")
        return None
    first, solved = _seconds(learner[0]), _solved_at(rows)
    if solved is None:
        best = max((float(row["mean_return"]) for row in rows), default=float("nan"))
        print(f"{seed:>4} {first:>8.1f} s not solved; best evaluation {best:.1f}")
        return None
    after = [
        float(row["mean_return"]) for row in rows if solved < _seconds(row) <= solved + hold_seconds
    ]
    held = f"{sum(value >= TARGET for value in after)} of {len(after)}"
    steps = next(row["learner_steps"] for row in rows if _seconds(row) == solved)
    lowest = min(after, default=float("nan"))
    print(
        f"{seed:>4} {first:>8.1f} s {solved - first:>6.1f} s {float(steps):>7.0f} {held:>12} "
        f"{lowest:>7.1f}",
        flush=True,
    )
    return solved - first


def _solved_at(rows: list[dict[str, str]]) -> float | None:
    return next((_seconds(row) for row in rows if float(row["mean_return"]) >= TARGET), None)


def _seconds(row: dict[str, str]) -> float:
    return float(row["wall_time_seconds"])


def _read(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open() as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


if __name__ == "__main__":
    main()
