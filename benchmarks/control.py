"""Steps and seconds to a level on tasks of the control suite: ours, and those of other libraries.

A level is reached when the mean return of ten episodes without noise is, and a run ends there; one
that does not reach it within the task's steps counts with infinity. Steps are those of the
environment: all hold their actions for as many of them. Seconds begin with the process, imports
included; all run on the same two cores, one after the other, seed by seed. The other library is
Stable-Baselines3, for TQC and CrossQ sb3-contrib, with its defaults (`peers/control.py`); our
settings are those of `--configs`.

Every evaluation becomes a line of `--curves`. Runs that are in this file are not run again, so that
what takes hours can be done in parts; the table in the end is of all runs in it. Where other work
ran beside, seconds can be set to nan there: the table leaves them out. The other library needs
`make .venv-peers/.installed`.

Example:
  python benchmarks/control.py --tasks cartpole:swingup --seeds 1 --others
"""

import contextlib
import csv
import itertools
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from measuring import Row, at_most, make_parser, ratios, report, spread
from our_runs import ROOT, our_run
from peer_processes import peer_command, run_peer

from apex_agents.runs.csv_file import RowReader
from apex_agents.studies.results import format_table


class Task(NamedTuple):
    """What is asked on a task.

    Attributes:
      level: mean return to be reached.
      max_steps: steps of the environment within which it should be.
      action_repeat: steps of the environment per agent step (Hafner et al. 2019, table 1).
    """

    level: float
    max_steps: int
    action_repeat: int


TASKS = {
    "cartpole:swingup": Task(800.0, 200_000, 8),
    "ball_in_cup:catch": Task(950.0, 500_000, 4),
    "reacher:easy": Task(900.0, 500_000, 4),
    "finger:spin": Task(750.0, 500_000, 2),
    "walker:stand": Task(900.0, 500_000, 2),
    "walker:walk": Task(850.0, 1_000_000, 2),
    "cheetah:run": Task(600.0, 1_000_000, 4),
    "humanoid:stand": Task(353.0, 1_000_000, 2),  # The better one of SAC's published returns.
}
CONFIGS = ("apex_dpg_control_single_host",)
OTHERS = ("sac", "td3", "tqc", "crossq")
LABELS = {
    "apex_dpg_control_single_host": "Ape-X DPG",
    "apex_dpg_control_single_host agent.num_critics=2": "Ape-X DPG, two critics",
    "sac": "SAC",
    "td3": "TD3",
    "tqc": "TQC",
    "crossq": "CrossQ",
}
COLUMNS = ("task", "name", "seed", "environment_steps", "seconds", "mean_return")


class Evaluation(NamedTuple):
    """A point of a curve; see `COLUMNS`."""

    environment_steps: float
    seconds: float
    mean_return: float


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each, with seeds 0, 1, ...")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for each run")
    what = (
        "our settings: configs, each of which may be followed by fields, as 'NAME agent.n_step=3'"
    )
    parser.add_argument("--configs", nargs="*", default=CONFIGS, help=what)
    parser.add_argument("--others", nargs="*", choices=OTHERS, default=OTHERS)
    parser.add_argument("--curves", type=pathlib.Path, default=ROOT / "results" / "control.csv")
    parser.add_argument("--runs", type=pathlib.Path, help="folder that keeps our runs")
    arguments = parser.parse_args()
    if arguments.others:
        peer_command("control.py")  # Fails now if they are missing.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    rows, series = [], {}
    known = read_curves(arguments.curves)
    for task in arguments.tasks:
        steps: dict[str, list[float]] = {}
        seconds: dict[str, list[float]] = {}
        for seed in range(arguments.seeds):
            for name in (*arguments.configs, *arguments.others):
                curve = known.get((task, name, str(seed)), [])
                if not curve:
                    if name in OTHERS:
                        curve = run_other(name, task, seed, arguments.limit)
                    else:
                        curve = run_ours(name, task, seed, arguments.limit, arguments.runs)
                    append_curve(arguments.curves, task, name, seed, curve)
                at_level = first_at(TASKS[task].level, curve)
                steps.setdefault(name, []).append(at_level.environment_steps)
                seconds.setdefault(name, []).append(at_level.seconds)
                print(f"{task}, seed {seed}, {name}: {at_level}", flush=True)
        rows += make_rows(task, steps, seconds)
        series[task] = {"steps": steps, "seconds": seconds}
    report("control", arguments.out, rows, series)
    print(make_table(arguments.curves))


def make_rows(
    task: str, steps: dict[str, list[float]], seconds: dict[str, list[float]]
) -> list[Row]:
    """Say what each name needed for a task, and which aims hold."""
    what, rows = f"{task} to {TASKS[task].level:g}", list[Row]()
    for name in steps:
        num_reached = sum(map(math.isfinite, steps[name]))
        title = f"{what}, {name} (reached by {num_reached} of {len(steps[name])})"
        rows.append(at_most(title, spread(steps[name]), TASKS[task].max_steps, "steps"))
        if known := [value for value in seconds[name] if not math.isnan(value)]:
            rows.append(Row(f"{what}, {name}", spread(known), "s"))
    for name in (name for name in seconds if name not in OTHERS):
        for other in (other for other in seconds if other in OTHERS):
            pairs = list(zip(seconds[name], seconds[other], strict=True))
            known_pairs = [pair for pair in pairs if not math.isnan(sum(pair))]
            if known_pairs and math.inf not in seconds[other]:
                ratio = ratios(*zip(*known_pairs, strict=True))
                rows.append(at_most(f"{what}, time of {name} / {other}, by seed", ratio, 0.5))
    return rows


def make_table(path: pathlib.Path) -> str:
    """Return what each agent needed for each task, of all runs in the file."""
    runs: dict[tuple[str, str], dict[str, list[Evaluation]]] = {}
    for (task, name, seed), curve in read_curves(path).items():
        runs.setdefault((task, name), {})[seed] = curve
    cells = [["task, level", "agent", "runs", "environment steps", "seconds"]]
    for task in TASKS:
        names = {name for of_task, name in runs if of_task == task}
        for name in sorted(names, key=lambda name: (name in OTHERS, name)):
            curves = list(runs[task, name].values())
            needed = show_needed(TASKS[task].level, curves)
            what = f"{task}, {TASKS[task].level:g}"
            cells.append([what, LABELS.get(name, name), str(len(curves)), *needed])
    return format_table(cells)


def show_needed(level: float, curves: Sequence[list[Evaluation]]) -> tuple[str, str]:
    """Format the steps and the seconds to a level: of runs that reached it, and of the others."""
    ends = [first_at(level, curve) for curve in curves]
    reached = [end for end in ends if end.environment_steps < math.inf]
    steps = [show([end.environment_steps for end in reached])] if reached else []
    seconds = [show([end.seconds for end in reached])] if reached else []
    for curve, end in zip(curves, ends, strict=True):
        if end not in reached:
            last = curve[-1]
            steps.append(f"not reached: {last.mean_return:.0f} at {last.environment_steps:,.0f}")
            seconds.append(f"not within {last.seconds:,.0f}".replace("not within nan", "-"))
    return "; ".join(steps), "; ".join(seconds)


def show(values: Sequence[float]) -> str:
    """Format the median, the smallest and the largest of those that are known, which nan is not."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "-"
    text = f"{statistics.median(known):,.0f}"
    if len(known) > 1:
        text += f" ({min(known):,.0f} to {max(known):,.0f})"
    return text if len(known) == len(values) else f"{text}, {len(known)} of {len(values)}"


def run_ours(
    settings: str, task: str, seed: int, limit: float, runs: pathlib.Path | None
) -> list[Evaluation]:
    """Run our command until the level, the task's steps or a number of seconds."""
    level, max_steps, action_repeat = TASKS[task]
    config, *changes = settings.split()
    name = "-".join([pathlib.Path(config).stem, *changes, task.replace(":", "_"), str(seed)])
    fields = {
        "environment.task": task,
        "environment.action_repeat": action_repeat,
        "run.seed": seed,
        "run.target_return": level,
        "run.max_actor_steps": max_steps // action_repeat,
    }
    changes += [f"{field}={value}" for field, value in fields.items()]
    flags = [f"--config.{change}" for change in changes]
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(runs or folder, name)
        training = our_run(workdir, f"--config={config}", *flags, agent="apex_dpg")
        with training as run, contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(limit)
        rows = [row for row in RowReader(workdir / "logs" / "evaluator.csv").read() if row]
    if run.returncode not in (0, 130):
        raise SystemExit(f"our command failed with exit code {run.returncode}")
    return [
        Evaluation(
            round(float(row["actor_steps"])) * action_repeat,
            float(row["wall_time_seconds"]),
            float(row["mean_return"]),
        )
        for row in rows
    ]


def run_other(name: str, task: str, seed: int, limit: float) -> list[Evaluation]:
    """Run an algorithm of the other library, as `run_ours` does."""
    level, max_steps, action_repeat = TASKS[task]
    options = {
        "seed": seed,
        "limit": limit,
        "target": level,
        "action_repeat": action_repeat,
        "max_steps": max_steps,
    }
    flags = [f"--{option}={value}" for option, value in options.items()]
    command = peer_command("control.py", name, task, *flags)
    return [
        Evaluation(line["agent_steps"] * action_repeat, line["seconds"], line["mean_return"])
        for line in run_peer(command)
    ]


def first_at(level: float, curve: list[Evaluation]) -> Evaluation:
    """Return the first evaluation at a level, or the last return and infinity."""
    for evaluation in curve:
        if evaluation.mean_return >= level:
            return evaluation
    last = curve[-1].mean_return if curve else float("nan")
    return Evaluation(float("inf"), float("inf"), last)


def read_curves(path: pathlib.Path) -> dict[tuple[str, str, str], list[Evaluation]]:
    """Return the evaluations of each run in the file, if there is one, by task, name and seed."""
    curves: dict[tuple[str, str, str], list[Evaluation]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for task, name, seed, *numbers in itertools.islice(csv.reader(file), 1, None):
                evaluation = Evaluation(*map(float, numbers))
                curves.setdefault((task, name, seed), []).append(evaluation)
    return curves


def append_curve(
    path: pathlib.Path, task: str, name: str, seed: int, curve: list[Evaluation]
) -> None:
    """Add the evaluations of one run to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        for steps, seconds, mean_return in curve:
            row = (task, name, seed, steps, f"{seconds:.1f}", f"{mean_return:.1f}")
            writer.writerow(row)


if __name__ == "__main__":
    main()
