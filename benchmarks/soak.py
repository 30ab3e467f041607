r"""Lets CartPole train for long, kills nodes at random if asked to, and checks what that does.

Examples:
  python benchmarks/soak.py --minutes 30              # open files, threads and memory of every node
  python benchmarks/soak.py --minutes 30 --kills 200  # kill -9 of a random node every 9 s
  python benchmarks/soak.py --minutes 30 --kills 200 --replays 2

Exit code 1 if a promise of docs/explanation/reliability.md did not hold.
"""

import argparse
import collections
import contextlib
import csv
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import psutil
from our_runs import ROOT

from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import replay_name

FLAGS = (
    "--lp_launch_type=local_mp",
    "--config.run.target_return=1000",
    "--config.run.max_actor_steps=1000000000",
    "--config.run.checkpoint_period_seconds=5",
    "--config.run.max_restarts=1000",
    "--config.run.restart_window_seconds=20",
)
TARGET_RETURN = 475.0
SAMPLE_PERIOD_SECONDS = 60.0
LEAVE_WITHIN_SECONDS = 400.0  # Beside other work.


class Soak:
    """A training of CartPole that does not end by itself, and what has been seen of it.

    Attributes:
      problems: promises that did not hold.
      kills: number of kills by node.
      kills_before_target: number of kills before the target was first reached; None if it was not.
      rows: rows of the evaluator.
      usage: open files, threads and megabytes of every process, one sample per minute.
    """

    def __init__(self, workdir: pathlib.Path, seed: int, num_replays: int):
        """Start the training, with an actor for each replay."""
        self.problems: list[str] = []
        self.kills: collections.Counter[str] = collections.Counter()
        self.kills_before_target: int | None = None
        self.rows: list[dict[str, str]] = []
        self.usage: dict[str, list[tuple[int, int, int]]] = {}
        self._workdir = workdir
        self._random = random.Random(seed)
        self._names = ["learner", "evaluator"]
        for index in range(num_replays):
            self._names += [replay_name(index), f"actor_{index}"]
        flags = [f"--config.run.{name}={num_replays}" for name in ("num_actors", "num_replays")]
        command = [sys.executable, str(ROOT / "launch" / "apex_dqn.py"), f"--workdir={workdir}"]
        self._command = subprocess.Popen([*command, *FLAGS, *flags], start_new_session=True)

    def watch(self, minutes: float, num_kills: int) -> None:
        """Kill nodes and take samples for some minutes."""
        started = time.monotonic()
        kill_period = 60 * minutes / (num_kills + 1)
        next_kill, next_sample = started + kill_period, started + SAMPLE_PERIOD_SECONDS
        while time.monotonic() < started + 60 * minutes or self.kills.total() < num_kills:
            time.sleep(0.5)
            if self._command.poll() is not None:
                self.problems.append("the run ended by itself")
                return
            if time.monotonic() >= next_kill and self.kills.total() < num_kills:
                self._kill_one()
                next_kill = time.monotonic() + kill_period
            if time.monotonic() >= next_sample:
                self._sample()
                next_sample += SAMPLE_PERIOD_SECONDS
            self._read_rows()

    def stop(self) -> None:
        """Stop the training, and check what it leaves behind."""
        nodes = self._nodes()
        self._command.send_signal(signal.SIGTERM)
        exit_code = self._command.wait(LEAVE_WITHIN_SECONDS)
        self._read_rows()
        if exit_code != 143:
            self.problems.append(f"exit code {exit_code} instead of 143")
        if orphans := [process for process in nodes.values() if process.is_running()]:
            self.problems.append(f"still alive: {orphans}")
        steps = [float(row["learner_steps"]) for row in self.rows]
        if steps != sorted(set(steps)):
            self.problems.append("a row of the evaluator was doubled")
        if self.kills_before_target is None:
            self.problems.append(f"no evaluation reached {TARGET_RETURN:g}")

    def close(self) -> None:
        """Kill the command if it is still there."""
        self._command.kill()

    def _nodes(self) -> dict[str, psutil.Process]:
        """Return the living processes of the nodes by name."""
        # The folder holds no run yet, or the command has exited.
        with contextlib.suppress(ValueError, psutil.NoSuchProcess):
            nodes = RunFolder(self._workdir).nodes()
            children = {p.pid: p for p in psutil.Process(self._command.pid).children()}
            pids = {name: node["pid"] for name, node in nodes.items()}
            return {name: children[pid] for name, pid in pids.items() if pid in children}
        return {}

    def _kill_one(self) -> None:
        """Kill a random node, unless it waits for its restart."""
        name = self._random.choice(self._names)
        if process := self._nodes().get(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
            self.kills[name] += 1

    def _sample(self) -> None:
        processes = {"launcher": psutil.Process(self._command.pid), **self._nodes()}
        for name, process in processes.items():
            with contextlib.suppress(psutil.Error):
                files, threads = process.num_fds(), process.num_threads()
                sample = (files, threads, process.memory_info().rss >> 20)
                self.usage.setdefault(name, []).append(sample)

    def _read_rows(self) -> None:
        rows_before, self.rows = self.rows, []
        path = self._workdir / "logs" / "evaluator.csv"
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            self.rows = list(csv.DictReader(file))
        if self.rows[: len(rows_before)] != rows_before:
            self.problems.append(f"evaluator's rows {rows_before} became {self.rows}")
        reached = any(float(row["mean_return"]) >= TARGET_RETURN for row in self.rows)
        if reached and self.kills_before_target is None:
            self.kills_before_target = self.kills.total()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the run")
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of a random node, so often")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of nodes")
    parser.add_argument("--replays", type=int, default=1, help="replay servers")
    parser.add_argument("--workdir", help="folder of the run; a temporary one by default")
    arguments = parser.parse_args()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        workdir = arguments.workdir or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True)
        )
        soak = Soak(pathlib.Path(workdir), arguments.seed, arguments.replays)
        stack.callback(soak.close)
        soak.watch(arguments.minutes, arguments.kills)
        seconds = time.monotonic() - started
        soak.stop()
    print(f"\n{seconds / 60:.1f} minutes, {soak.kills.total()} kills: {dict(soak.kills)}")
    report(soak)
    for problem in soak.problems:
        print(f"PROBLEM: {problem}")
    sys.exit(1 if soak.problems else 0)


def report(soak: Soak) -> None:
    """Print evaluations, and how open files, threads and memory have grown."""
    returns = [float(row["mean_return"]) for row in soak.rows]
    solved = sum(value >= TARGET_RETURN for value in returns)
    print(f"{len(returns)} evaluations, {solved} of them >= {TARGET_RETURN:g}")
    if soak.rows:
        print(f"learner steps {soak.rows[-1]['learner_steps']}, best {max(returns)}")
    if soak.kills_before_target is not None:
        print(f"target first reached after {soak.kills_before_target} kills")
    print(f"{'':10} {'open files':>24} {'threads':>24} {'memory in MB':>24}")
    for name, samples in soak.usage.items():
        numbers = zip(*samples, strict=True)
        cells = [f"{values[0]} -> {values[-1]} (max {max(values)})" for values in numbers]
        print(f"{name:10} " + " ".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
