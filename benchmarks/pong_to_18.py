"""Time until an evaluation of Pong reaches 18, on two cores with nothing beside the run.

`--runs` names the folder of a study, whose evaluations are written to `--out` first. Then the time
and the agent steps of each seed in the file are printed.

Example:
  apex-study --config=apex_dqn_atari_single_host --seeds=3 --workdir=runs/pong_18 \
      --config.environment.task=pong --config.run.target_return=18
  python benchmarks/pong_to_18.py --runs runs/pong_18
"""

import argparse
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
from our_runs import ROOT

from apex_agents.runs.folder import find_runs
from apex_agents.studies.results import Point, from_csv, read_evaluations, to_csv

LEVEL = 18.0
FILE = ROOT / "results" / "atari" / "pong_two_cores.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", help="folder of a study; by default those of --out")
    parser.add_argument("--out", type=pathlib.Path, default=FILE, help="CSV file of evaluations")
    arguments = parser.parse_args()
    if arguments.runs:
        runs = {run.settings("run")["seed"]: run for run in find_runs(arguments.runs)}
        found = [read_evaluations(run, "pong", "Ape-X DQN", seed) for seed, run in runs.items()]
        arguments.out.write_text(to_csv(point for points in found for point in points))
    print(describe(from_csv(arguments.out.read_text())))


def describe(points: Sequence[Point]) -> str:
    """Return when each seed had its first evaluation of at least `LEVEL`, and the median time."""
    first = {point.seed: point for point in reversed(points) if point.mean_return >= LEVEL}
    reached = [first.get(seed) for seed in dict.fromkeys(point.seed for point in points)]
    minutes = [point.wall_time_seconds / 60 if point else np.inf for point in reached]
    thousands = [f"{point.actor_steps / 1000:.0f}" if point else "-" for point in reached]
    return (
        f"{LEVEL:g} after {_enumerate(f'{m:.1f}' for m in minutes)} minutes "
        f"({_enumerate(thousands)} thousand agent steps), median {np.median(minutes):.1f}"
    )


def _enumerate(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


if __name__ == "__main__":
    main()
