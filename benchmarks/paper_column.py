"""Prints the table of a study for a column of logs/learner.csv in place of the returns.

As with the returns, a run has the mean of the last quarter of its learner steps. Runs without the
column are left out. With --reaching a run has the agent steps, in thousands, until the mean return
of an evaluation is that large; inf if none is, and the interval of several runs is nan then.

Example:
  apex-study section_3 --workdir=runs/paper/section_3
  python benchmarks/paper_column.py --column=sample_age_steps runs/paper/section_3
"""

import argparse
import pathlib

import numpy as np

from apex_agents.metrics import columns
from apex_agents.plotting.curves import make_curve
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.results import (
    MEANING_OF_ESTIMATES,
    format_table,
    score_curve,
    show_estimate,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="the study's folder")
    shown = parser.add_mutually_exclusive_group(required=True)
    shown.add_argument("--column", help="column of logs/learner.csv")
    shown.add_argument("--reaching", type=float, help="mean return of an evaluation")
    arguments = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    others: set[str] = set()
    for path in sorted(arguments.folder.glob("*/setting=*/seed_*/logs/learner.csv")):
        task, setting = path.relative_to(arguments.folder).parts[:2]
        run, label = RunFolder(path.parent.parent), setting.removeprefix("setting=")
        if arguments.column is None:
            value = thousands_until(run, arguments.reaching)
        else:
            table = run.read_columns(columns.LEARNER)
            if arguments.column not in table:
                others.update(table)
                continue
            value = score_curve(make_curve(table[columns.LEARNER_STEPS], table[arguments.column]))
        found.setdefault(label, {}).setdefault(task, []).append(value)
    if not found and others:
        parser.error(f"--column={arguments.column} is none of {', '.join(sorted(others))}.")
    if not found:
        parser.error(f"{arguments.folder} holds no runs of a study.")
    tasks = sorted({task for by_task in found.values() for task in by_task})
    cells = [["setting", *tasks]]
    for label, by_task in found.items():
        cells.append([label, *(show_estimate(by_task.get(task, [])) for task in tasks)])
    print(format_table(cells))
    name = arguments.column or f"thousands of agent steps until {arguments.reaching:g}"
    print(f"{name}: {MEANING_OF_ESTIMATES}.")


def thousands_until(run: RunFolder, mean_return: float) -> float:
    """Return the agent steps until the first evaluation with that return, in thousands."""
    table = run.read_columns(columns.EVALUATOR)
    reached = np.flatnonzero(table.get(columns.MEAN_RETURN, np.empty(0)) >= mean_return)
    return float(table[columns.ACTOR_STEPS][reached[0]]) / 1_000 if len(reached) else np.inf


if __name__ == "__main__":
    main()
