"""The scores of bsuite on memory_len and memory_size: R2D2, and Ape-X DQN, which has no memory.

Each of bsuite's ids is a number of steps (memory_len) or of bits (memory_size) to remember, up to
100 and 40, for 10,000 episodes. The score is the share of ids in which fewer than three eighths of
the answers are wrong, exploration and all: of random ones half are, and bsuite asks for three
quarters of that.

Each finished run becomes a line of `--out`; runs that are in this file are not run again. The
package bsuite has to be installed.

Example:
  python benchmarks/bsuite_memory.py --parallel 2
"""

import argparse
import concurrent.futures
import csv
import pathlib
import subprocess
import tempfile
import time

import numpy as np
from bsuite.experiments.memory_len import sweep as memory_len
from bsuite.experiments.memory_size import sweep as memory_size
from measuring import exit_on_sigterm
from our_runs import ROOT, our_run

from apex_agents.metrics import columns
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.results import format_table

# memory_length and num_bits of each id, by experiment.
IDS = {
    "memory_len": [(setting["memory_length"], 1) for setting in memory_len.SETTINGS],
    "memory_size": [(2, setting["num_bits"]) for setting in memory_size.SETTINGS],
}
NUM_EPISODES = memory_len.NUM_EPISODES
MAX_WRONG = 0.75 * 0.5
AGENTS = {"R2D2": ("r2d2", "r2d2_bsuite"), "Ape-X DQN": ("apex_dqn", "apex_dqn_cartpole")}
COLUMNS = ("experiment", "memory_length", "num_bits", "agent", "wrong_share", "seconds")


def main() -> None:
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--experiments", nargs="+", choices=IDS, default=list(IDS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--max-length", type=int, default=100, help="leaves longer ids out")
    parser.add_argument("--parallel", type=int, default=1, help="runs at once")
    results = ROOT / "results" / "memory" / "bsuite.csv"
    parser.add_argument("--out", type=pathlib.Path, default=results)
    arguments = parser.parse_args()
    if not arguments.out.exists():
        arguments.out.write_text(",".join(COLUMNS) + "\n")
    known = {tuple(row)[:4] for row in read(arguments.out)}
    wanted = [
        (experiment, length, bits, agent)
        for experiment in arguments.experiments
        for length, bits in sorted(IDS[experiment])
        for agent in arguments.agents
        if length <= arguments.max_length
        and (experiment, str(length), str(bits), agent) not in known
    ]
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as executor:
        waiting = [executor.submit(run_id, *task) for task in wanted]
        try:
            for future in concurrent.futures.as_completed(waiting):
                with arguments.out.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(future.result())
                print(*future.result(), flush=True)
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise
    print(format_table([["experiment", "agent", "ids", "score"], *score(read(arguments.out))]))


def read(path: pathlib.Path) -> list[list[str]]:
    """Return the lines of a file of results behind the first one."""
    with path.open() as file:
        return list(csv.reader(file))[1:]


def score(rows: list[list[str]]) -> list[list[str]]:
    """Return the number of ids and the score of each agent on each experiment."""
    wrong: dict[tuple[str, str], list[float]] = {}
    for experiment, _, _, agent, share, _ in rows:
        wrong.setdefault((experiment, agent), []).append(float(share))
    return [
        [*key, f"{len(shares)} of {len(IDS[key[0]])}", f"{np.mean(np.less(shares, MAX_WRONG)):.2f}"]
        for key, shares in wrong.items()
    ]


def run_id(experiment: str, length: int, bits: int, agent: str) -> tuple[str | float, ...]:
    """Train for the episodes of an id and return a line of the results."""
    script, config = AGENTS[agent]
    flags = [
        f"--config={config}",
        "--config.environment.suite=function",
        "--config.environment.task=bsuite.environments.memory_chain:MemoryChain",
        f"--config.environment.kwargs={{'memory_length': {length}, 'num_bits': {bits}}}",
        "--config.run.target_return=None",
        f"--config.run.max_actor_steps={NUM_EPISODES * (length + 1)}",
        "--config.run.evaluation.min_period_seconds=60",
    ]
    if agent == "R2D2":
        flags.append(f"--config.agent.sequence_length={length + 1}")
        flags.append(f"--config.agent.sequence_period={length + 1}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder) / "run"
        with our_run(workdir, *flags, agent=script) as run:
            if code := run.wait():
                raise subprocess.CalledProcessError(code, flags)
        wrong = wrong_share(workdir)
    return experiment, length, bits, agent, round(wrong, 4), round(time.monotonic() - start, 1)


def wrong_share(workdir: pathlib.Path) -> float:
    """Return the share of the first episodes of a run whose answer was wrong, a return of -1."""
    folder = RunFolder(workdir)
    tables = [folder.read_columns(path.stem) for path in (workdir / "logs").glob("actor_[0-9].csv")]
    names = (columns.WALL_TIME_SECONDS, columns.EPISODES, columns.EPISODE_RETURN)
    times, episodes, returns = (np.concatenate([table[name] for table in tables]) for name in names)
    order = np.argsort(times)
    before = np.cumsum(episodes[order]) - episodes[order]
    counted = np.clip(NUM_EPISODES - before, 0, episodes[order])
    answers = counted > 0
    return float(np.average((1 - returns[order][answers]) / 2, weights=counted[answers]))


if __name__ == "__main__":
    main()
