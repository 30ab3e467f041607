"""How fast, and how surely, a setting reaches a return, and how well it holds it.

Runs a training command once per seed, without a target of its own, so that it continues after the
evaluator's mean return has reached the one given here. Times count from the first learner step.

  python benchmarks/seeds.py apex_dqn --target 475 --seeds 10 --hold_seconds 60
  python benchmarks/seeds.py apex_dpg --target -200 --seeds 5
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from our_runs import our_run, wait_for

from apex_agents.runs.folder import RowReader

Rows = list[dict[str, Any]]


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
    print(f"{'seed':>4} {'first step':>10} {'reached':>8} {'steps':>7} {'held':>12} {'lowest':>8}")
    reached = []
    for seed in range(arguments.seeds):
        first_step, rows = train(seed, arguments, argv[end + 1 :])
        print(f"{seed:>4} {describe(first_step, rows, arguments)}", flush=True)
        if (seconds := reached_at(rows, arguments.target)) is not None:
            reached.append(seconds - first_step)
    within = sum(seconds <= 60 for seconds in reached)
    print(f"reached within 60 s of the first learner step: {within} of {arguments.seeds}")
    if reached:
        median, slowest = statistics.median(reached), max(reached)
        print(f"seconds to reach it: median {median:.0f}, slowest {slowest:.0f}")
    print(f"not reached, or failed: {arguments.seeds - len(reached)}")


def train(seed: int, arguments: argparse.Namespace, flags: Sequence[str]) -> tuple[float, Rows]:
    """Train until the target was held for long enough, or is given up.

    Returns:
      When the learner's first row was written, in seconds since the start (NaN if none was), and
      the evaluator's rows.
    """
    fields = [f"--config.run.seed={seed}", "--config.run.target_return=1e9", *flags]
    first_step: Any = float("nan")
    rows: Rows = []
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder, "run", "logs")
        learner, evaluator = [RowReader(logs / f"{name}.csv") for name in ("learner", "evaluator")]

        def watch() -> float | None:
            rows.extend(evaluator.read())
            return reached_at(rows, arguments.target)

        def has_held() -> bool:
            return rows[-1]["wall_time_seconds"] >= watch() + arguments.hold_seconds

        training = our_run(logs.parent, *fields, agent=arguments.agent)
        with training as run, contextlib.suppress(TimeoutError):
            first_step = wait_for(learner.read, run)[0]["wall_time_seconds"]
            wait_for(watch, run, arguments.give_up_seconds)
            wait_for(has_held, run, arguments.hold_seconds + 60)
        rows.extend(evaluator.read())
    return first_step, rows


def describe(first_step: float, rows: Rows, arguments: argparse.Namespace) -> str:
    """Return a line of the table."""
    reached = reached_at(rows, arguments.target)
    if reached is None:
        best = max((row["mean_return"] for row in rows), default=float("nan"))
        return f"{first_step:>8.1f} s not reached; best evaluation {best:.1f}"
    end = reached + arguments.hold_seconds
    after = [row["mean_return"] for row in rows if reached < row["wall_time_seconds"] <= end]
    held = f"{sum(value >= arguments.target for value in after)} of {len(after)}" if after else "-"
    steps = next(row["learner_steps"] for row in rows if row["wall_time_seconds"] == reached)
    lowest = min(after, default=float("nan"))
    seconds = f"{first_step:>8.1f} s {reached - first_step:>6.1f} s"
    return f"{seconds} {steps:>7.0f} {held:>12} {lowest:>8.1f}"


def reached_at(rows: Rows, target: float) -> float | None:
    """Return when an evaluation first reached a return, in seconds since the start."""
    return next((row["wall_time_seconds"] for row in rows if row["mean_return"] >= target), None)


if __name__ == "__main__":
    main()
