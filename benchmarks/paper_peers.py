"""Trains another library's agents for a figure of the paper: its tasks, as long as our runs.

Figure 2 has DQN and A2C of Stable-Baselines3 in equal wall time (`peers/minatar_games.py`), figure
3 its DDPG for as many updates (`peers/control.py`). A run has a core of its own. The CSV file has
the columns of a study's, so that `apex-paper --figure=2 --beside=FILE` draws it; runs that are in
it are not run again. The other library needs `make .venv-peers/.installed`.

Example:
  python benchmarks/paper_peers.py --figure 2 --seeds 1 --out runs/paper/figure_2_peers.csv
"""

import argparse
import concurrent.futures
import os
import pathlib
import queue
from collections.abc import Iterator

from our_runs import ROOT
from peer_processes import peer_command, run_peer

from apex_agents.command_line.settings import execute_file
from apex_agents.sweep.study import Point, Study, from_csv, to_csv

FIGURES = {
    "2": {"Stable-Baselines3's DQN": "dqn", "Stable-Baselines3's A2C": "a2c"},
    "3": {"Stable-Baselines3's DDPG": "ddpg"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figure", choices=FIGURES, required=True)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each, with seeds 0, 1, ...")
    parser.add_argument("--parallel", type=int, default=1, help="runs at once, each on one core")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="CSV file")
    arguments = parser.parse_args()
    path = ROOT / "configs" / "paper" / f"figure_{arguments.figure}.py"
    study = execute_file("figure", path, Study, "get_study")
    points = from_csv(arguments.out.read_text()) if arguments.out.exists() else []
    done = {point[:3] for point in points}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[: arguments.parallel]:
        cores.put(core)

    def run(task: str, label: str, seed: int) -> list[Point]:
        core = cores.get()
        algorithm = FIGURES[arguments.figure][label]
        try:
            return list(train(study, task, label, algorithm, seed, core))
        finally:
            cores.put(core)

    with concurrent.futures.ThreadPoolExecutor(cores.qsize()) as pool:
        runs = [
            pool.submit(run, task, label, seed)
            for seed in range(arguments.seeds)
            for task in study.tasks
            for label in FIGURES[arguments.figure]
            if (task, label, seed) not in done
        ]
        try:
            for ended in concurrent.futures.as_completed(runs):
                points += ended.result()
                arguments.out.write_text(to_csv(sorted(points)))
                print(*points[-1], flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def train(
    study: Study, task: str, label: str, algorithm: str, seed: int, core: int
) -> Iterator[Point]:
    """Train for as long as a run of the study is, on one core, and yield the evaluations."""
    seconds = study.fields.get("run.max_seconds")
    if seconds is not None:
        options = {"limit": seconds, "period": study.fields["run.evaluation.min_period_seconds"]}
        script = "minatar_games.py"
    else:
        repeats = study.fields["environment.action_repeat"]
        max_steps = study.fields["run.max_learner_steps"] * repeats  # It learns once per step.
        options = {"max_steps": max_steps, "action_repeat": repeats, "target": 1_001, "limit": 1e6}
        script = "control.py"
    flags = [f"--{name}={value}" for name, value in options.items()]
    command = peer_command(script, algorithm, task, f"--seed={seed}", *flags)
    for row in run_peer(["taskset", "-c", str(core), *command]):
        steps = row["agent_steps"], row["learner_steps"]
        yield Point(task, label, seed, *steps, row["seconds"], row["mean_return"])


if __name__ == "__main__":
    main()
