"""Trains the prioritized agents of figure 12 with priorities that belong to other transitions.

The learner's priorities are shuffled within each batch (`examples/own_update.py`), and new
transitions have the largest one so far, since those of the actors would be right. If the figure
shows what priorities are worth, these agents are no better than with uniform samples.

The CSV file has the columns of a study's, so that `apex-paper --figure=12 --beside=FILE` draws it.
Runs that are in it are not repeated.

Example:
  python benchmarks/paper_mutant.py --seeds 0 --out runs/paper/figure_12_shuffled.csv
"""

import argparse
import pathlib
import sys

from our_runs import ROOT

from apex_agents.command_line.settings import change_fields, execute_file
from apex_agents.presets import load_config
from apex_agents.sweep.plan import plan_runs
from apex_agents.sweep.study import Study, from_csv, read_points, to_csv
from apex_agents.training import train

sys.path.insert(0, str(ROOT / "examples"))
from own_update import ShuffledPrioritiesBuilder  # type: ignore[import-not-found]

FIGURE = ROOT / "configs" / "paper" / "figure_12.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workdir", type=pathlib.Path, default=pathlib.Path("runs/paper/mutant"))
    parser.add_argument("--out", type=pathlib.Path, required=True, help="CSV file")
    arguments = parser.parse_args()
    study = execute_file("figure", FIGURE, Study, "get_study")
    settings = {
        label.replace("prioritized", "shuffled"): setting
        for label, setting in study.settings.items()
        if label.startswith("prioritized") and label.endswith("rate 0.00025")
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    points = from_csv(arguments.out.read_text()) if arguments.out.exists() else []
    done = {point[:3] for point in points}
    for seed in arguments.seeds:
        for task in study.tasks:
            for label, (name, own_fields) in settings.items():
                if (task, label, seed) in done:
                    continue
                fields = {
                    **study.fields,
                    **own_fields,
                    "environment.task": task,
                    "run.seed": seed,
                    "agent.replay.initial_priority": "max",
                }
                config = change_fields(load_config(name), fields)
                (run,) = plan_runs(config, {"setting": label}, 1, arguments.workdir, ())
                if not run.is_finished:
                    ended = train(config, builder_fn=ShuffledPrioritiesBuilder, workdir=run.folder)
                    if ended.exit_code:  # Ctrl-C.
                        sys.exit(ended.exit_code)
                points += read_points(run)
                arguments.out.write_text(to_csv(sorted(points)))


if __name__ == "__main__":
    main()
