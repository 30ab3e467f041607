"""How fast, and how surely, a setting reaches a return, and how well it holds it.

Runs a training command once per seed, without a target of its own, so that it goes on after the
evaluator's mean return has reached the one given here. Times count from the first learner step.

  python benchmarks/seeds.py apex_dqn --target 475 --seeds 10 --hold_seconds 60
  python benchmarks/seeds.py apex_dpg --target -200 --seeds 5
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="What follows -- goes to the command, as in: -- --config.agent.n_step=1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("agent", choices=("apex_dqn", "apex_dpg"), help="which file of launch/")
    parser.add_argument("--target", type=float, required=True, help="mean return to reach")
    parser.add_argument("--seeds", type=int, default=5, help="runs, with seeds 0, 1, ...")
    parser.add_argument("--hold_seconds", type=float, default=0.0, help="watched afterwards")
    parser.add_argument("--give_up_seconds", type=float, default=180.0)
    argv = sys.argv[1:]
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = parser.parse_args(argv[:end])
    arguments.flags = argv[end + 1 :]
    seconds_to_target = []
    print(f"{'seed':>4} {'first step':>10} {'reached':>8} {'steps':>7} {'held':>12} {'lowest':>8}")
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            workdir = pathlib.Path(folder, "run")
            _run(workdir, seed, arguments)
            seconds_to_target.append(_report(workdir, seed, arguments))
    reached = sorted(seconds for seconds in seconds_to_target if seconds is not None)
    within = sum(seconds <= 60 for seconds in reached)
    print(
        f"reached {arguments.target:g} within 60 s of the first learner step: "
        f"{within} of {arguments.seeds}"
    )
    if reached:
        median, slowest = statistics.median(reached), reached[-1]
        print(f"seconds to reach it: median {median:.0f}, slowest {slowest:.0f}")
    missed = arguments.seeds - len(reached)
    print(f"not reached within {arguments.give_up_seconds:.0f} s, or failed: {missed}")


def _run(workdir: pathlib.Path, seed: int, arguments: argparse.Namespace) -> None:
    """Run until the seed has been watched long enough, then stop it as Ctrl-C does."""
    script = str(ROOT / "launch" / f"{arguments.agent}.py")
    command = [sys.executable, script, "--lp_launch_type=local_mp", f"--workdir={workdir}"]
    command += [f"--config.run.seed={seed}", "--config.run.target_return=1e9", *arguments.flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    started = time.monotonic()
    try:
        while process.poll() is None and not _is_over(workdir, started, arguments):
            time.sleep(0.5)
    finally:
        process.send_signal(signal.SIGINT)
        exit_code = process.wait()
    if exit_code not in (0, 128 + signal.SIGINT):
        print(f"seed {seed}: the run failed with exit code {exit_code}", flush=True)


def _is_over(workdir: pathlib.Path, started: float, arguments: argparse.Namespace) -> bool:
    """Say whether the seed has been watched for long enough; starting may take 60 s."""
    rows = read_rows(workdir / "logs/evaluator.csv")
    reached = reached_at(rows, arguments.target)
    if reached is not None:
        return _seconds(rows[-1]) >= reached + arguments.hold_seconds
    learner = read_rows(workdir / "logs/learner.csv")
    if learner:
        return _seconds(learner[-1]) >= _seconds(learner[0]) + arguments.give_up_seconds
    return time.monotonic() >= started + 60 + arguments.give_up_seconds


def _report(workdir: pathlib.Path, seed: int, arguments: argparse.Namespace) -> float | None:
    rows = read_rows(workdir / "logs/evaluator.csv")
    learner = read_rows(workdir / "logs/learner.csv")
    if not learner:
        print(f"{seed:>4} ended before the first learner step")
        return None
    first, reached = _seconds(learner[0]), reached_at(rows, arguments.target)
    if reached is None:
        best = max((float(row["mean_return"]) for row in rows), default=float("nan"))
        print(f"{seed:>4} {first:>8.1f} s not reached; best evaluation {best:.1f}", flush=True)
        return None
    end = reached + arguments.hold_seconds
    after = [float(row["mean_return"]) for row in rows if reached < _seconds(row) <= end]
    held = f"{sum(value >= arguments.target for value in after)} of {len(after)}" if after else "-"
    steps = next(row["learner_steps"] for row in rows if _seconds(row) == reached)
    lowest = min(after, default=float("nan"))
    print(
        f"{seed:>4} {first:>8.1f} s {reached - first:>6.1f} s {float(steps):>7.0f} {held:>12} "
        f"{lowest:>8.1f}",
        flush=True,
    )
    return reached - first


def reached_at(rows: list[dict[str, str]], target: float) -> float | None:
    return next((_seconds(row) for row in rows if float(row["mean_return"]) >= target), None)


def _seconds(row: dict[str, str]) -> float:
    return float(row["wall_time_seconds"])


def read_rows(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open() as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


if __name__ == "__main__":
    main()
