"""Trains another library's agents on the tasks of a study, for as long as its runs.

Where these have equal wall time, DQNs, A2C and PPO of Stable-Baselines3 have it, too
(`peers/minatar_games.py`, `peers/atari.py`), and so have its SAC, TQC and CrossQ
(`peers/control.py`) and sample-factory's APPO (`peers/appo.py`); in figure 3 DDPG has as many
updates. The CSV file has the columns of a study's, so that `--beside=FILE` of `apex-study` draws
it; runs that are in it are not run again. Needs `make .venv-peers/.installed`, and for APPO
`make .venv-appo/.installed`.

Example:
  python benchmarks/study_peers.py --study configs/paper/figure_2.py --seeds 1 --out runs/peers.csv
"""

import argparse
import concurrent.futures
import os
import pathlib
import queue
import re
from collections.abc import Iterator
from typing import Any

from peer_processes import peer_command, run_peer

from apex_agents.environments import EnvironmentConfig
from apex_agents.presets import execute_file
from apex_agents.runs.files import replace_file
from apex_agents.studies.results import Point, from_csv, to_csv
from apex_agents.studies.study import Study

# What is trained beside a study, by the label of the curve: a script of `peers/` and its algorithm.
PEERS: dict[str, dict[str, tuple[str, ...]]] = {
    "figure_2": {
        "Stable-Baselines3's DQN": ("minatar_games.py", "dqn"),
        "Stable-Baselines3's A2C": ("minatar_games.py", "a2c"),
        "Stable-Baselines3's A2C, our learning rate": ("minatar_games.py", "a2c_32"),
    },
    "figure_3": {"Stable-Baselines3's DDPG": ("control.py", "ddpg")},
    "atari_half_hour": {
        "Stable-Baselines3's DQN": ("atari.py", "dqn"),
        "Stable-Baselines3's A2C": ("atari.py", "a2c"),
        "Stable-Baselines3's PPO": ("atari.py", "ppo"),
        "sb3-contrib's QR-DQN": ("atari.py", "qr_dqn"),
        "sample-factory's APPO": ("appo.py",),
    },
    "control_ten_minutes": {
        "Stable-Baselines3's SAC": ("control.py", "sac"),
        "sb3-contrib's TQC": ("control.py", "tqc"),
        "sb3-contrib's CrossQ": ("control.py", "crossq"),
    },
    "pong_hour": {"Stable-Baselines3's A2C": ("atari.py", "a2c")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--study", type=pathlib.Path, required=True, help="file of the study")
    parser.add_argument(
        "--seeds", type=int, help="of each algorithm on each task; by default the study's"
    )
    parser.add_argument("--tasks", default="", help="regular expression, which their names contain")
    parser.add_argument(
        "--labels", default="", help="regular expression, as --tasks, of the curves"
    )
    parser.add_argument("--parallel", type=int, default=1, help="runs at once")
    parser.add_argument("--cores", type=int, default=1, help="cores of each run")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="CSV file")
    arguments = parser.parse_args()
    if (name := arguments.study.stem) not in PEERS:
        raise SystemExit(f"--study is {name}; there are peers for {', '.join(PEERS)}.")
    cores = sorted(os.sched_getaffinity(0))
    if arguments.parallel * arguments.cores > len(cores):
        needed = f"{arguments.parallel} runs at once with {arguments.cores} cores each"
        raise SystemExit(f"{needed} need more than the {len(cores)} cores that there are.")
    study = execute_file(arguments.study, Study, "get_study")
    points = from_csv(arguments.out.read_text()) if arguments.out.exists() else []
    done = {point[:3] for point in points}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    free: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for first in range(0, arguments.parallel * arguments.cores, arguments.cores):
        free.put(cores[first : first + arguments.cores])

    errors: list[Exception] = []

    def run(task: str, label: str, seed: int) -> list[Point]:
        if errors:  # Nothing else is begun, and what runs already is kept.
            return []
        cores_of_run = free.get()
        try:
            peer = PEERS[name][label]
            return list(train(study, peer, task, label, seed, cores_of_run))
        except Exception as error:
            errors.append(error)
            return []
        finally:
            free.put(cores_of_run)

    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        runs = [
            pool.submit(run, task, label, seed)
            for seed in range(arguments.seeds or study.num_seeds)
            for task in filter(re.compile(arguments.tasks).search, study.tasks)
            for label in filter(re.compile(arguments.labels).search, PEERS[name])
            if (task, label, seed) not in done
        ]
        for ended in concurrent.futures.as_completed(runs):
            if found := ended.result():
                points += found
                replace_file(arguments.out, to_csv(sorted(points)).encode())
                print(*points[-1], flush=True)
    if errors:
        raise SystemExit(f"{errors[0]}")


def train(
    study: Study, peer: tuple[str, ...], task: str, label: str, seed: int, cores: list[int]
) -> Iterator[Point]:
    """Train for as long as a run of the study is, on some cores, and yield the evaluations."""
    options = dict[str, Any]()
    if peer[0] == "control.py":
        repeats = study.fields.get("environment.action_repeat")
        environment = EnvironmentConfig(suite="control", task=task, action_repeat=repeats)
        options["action_repeat"] = environment.num_repeats
    if (seconds := study.fields.get("run.max_seconds")) is not None:
        options["limit"] = seconds
        options["period"] = study.fields["run.evaluation.min_period_seconds"]
    else:  # It learns once per agent step.
        max_steps = study.fields["run.max_learner_steps"] * options["action_repeat"]
        options |= {"max_steps": max_steps, "limit": 1e6}
    flags = [f"--{name}={value}" for name, value in options.items()]
    command = peer_command(*peer, task, f"--seed={seed}", *flags)
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
    for row in run_peer(["setpriv", "--pdeathsig", "TERM", *pinned]):  # It ends with this program.
        steps = row["agent_steps"], row["learner_steps"]
        yield Point(task, label, seed, *steps, row["seconds"], row["mean_return"])


if __name__ == "__main__":
    main()
