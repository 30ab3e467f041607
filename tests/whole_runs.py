"""Runs of whole programs: commands that are started as a user starts them."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import pytest

from apex_agents.runs.opening import read_counts
from apex_agents.runs.workdir import actor_steps_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Generous, for busy machines: start-up alone takes 10 s of two quiet cores.
TIMEOUT_SECONDS = 400
LEAVE_WITHIN_SECONDS = 400
_POLL_SECONDS = 0.1

CATCH = (
    "--config.environment.suite=toy",
    "--config.environment.task=catch",
    "--config.agent.batch_size=8",
    "--config.agent.mlp_hidden_sizes=(16,)",
    "--config.agent.stream_hidden_size=16",
    "--config.agent.replay.min_size=20",
    "--config.agent.replay.insert_batch=10",
    "--config.run.num_envs_per_actor=2",
    "--config.run.evaluation.num_episodes=3",
    "--config.run.evaluation.min_period_seconds=0.5",
)
ENDLESS = ("--config.run.max_actor_steps=1000000000",)
MANY_RESTARTS = ("--config.run.max_restarts=100", "--config.run.restart_window_seconds=20")
# A run that does not end by itself, with checkpoints, evaluations and restarts whenever one is due.
UNSETTLED = (
    *ENDLESS,
    *MANY_RESTARTS,
    "--config.run.target_return=None",
    "--config.run.checkpoint_period_seconds=0.5",
    "--config.run.evaluation.num_episodes=3",
    "--config.run.evaluation.min_period_seconds=0.5",
)


def apex_dqn(launch_type: str, *flags: str) -> tuple[str, ...]:
    return (
        "launch/apex_dqn.py",
        f"--lp_launch_type={launch_type}",
        "--config=configs/apex_dqn_cartpole.py",
        "--workdir={workdir}",
        *CATCH,
        *flags,
    )


def poll_until(condition: Callable[[], Any], timeout: float = TIMEOUT_SECONDS) -> bool:
    """Returns True once a condition holds, False if it does not within some seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


class Command:
    """A command in a session of its own; its output goes to files."""

    def __init__(self, folder: pathlib.Path, *argv: str, enter: Sequence[str] = ()):
        self.workdir = folder / "run"
        # Nodes have sessions of their own; this tells this command's from those of others.
        self._mark = uuid.uuid4().hex
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        with self._stdout.open("w") as out, self._stderr.open("w") as err:
            self._process = subprocess.Popen(
                [*enter, sys.executable, *argv],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "APEX_AGENTS_TEST": self._mark},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.exit_code: int | None = None

    def finish(self, timeout: float = TIMEOUT_SECONDS) -> Command:
        """Waits for the end."""
        try:
            self.exit_code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            alive = [process.cmdline() for process in self.processes()]
            pytest.fail(f"still running after {timeout} s: {alive}\n{self.output()}")
        return self

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Waits until a condition holds, which has to happen before the end; returns its value."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            is_running = self.is_running()
            if value := condition():
                return value
            assert is_running and time.monotonic() < deadline, self.output()
            time.sleep(_POLL_SECONDS)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Signals the launcher alone."""
        self._process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """Sends SIGINT to every process of the foreground group, as a terminal does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def processes(self) -> list[psutil.Process]:
        """Lists the living processes of the command, itself and its nodes."""
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("APEX_AGENTS_TEST") == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def left_behind(self) -> list[list[str]]:
        """Lists what does not end after the command."""
        poll_until(lambda: not self.processes(), LEAVE_WITHIN_SECONDS)
        return [process.cmdline() for process in self.processes()]

    def states(self) -> dict[str, dict[str, Any]]:
        """Reads the states of the nodes, by their names; see `NodeStatus`."""
        path = self.workdir / "nodes.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def nodes(self) -> dict[str, psutil.Process]:
        """Finds the living processes of the nodes by name."""
        alive = {process.pid: process for process in self.processes()}
        states = self.states()
        return {name: alive[node["pid"]] for name, node in states.items() if node["pid"] in alive}

    def num_restarts(self) -> dict[str, int]:
        """Returns how often each node was restarted, if it was."""
        states = self.states()
        return {n: state["num_restarts"] for n, state in states.items() if state["num_restarts"]}

    def exit_codes(self) -> dict[str, int]:
        """Returns the exit codes of the nodes' last processes, once the command has ended."""
        return {name: state["exit_code"] for name, state in self.states().items()}

    def node(self, name: str) -> psutil.Process:
        """Finds the process of a node, once it is there."""
        return self.wait_for(lambda: self.nodes().get(name))

    def kill(self, name: str) -> float:
        """Kills a node and waits until it has a new process; returns the time of the kill."""
        process, num_restarts = self.node(name), self.num_restarts().get(name, 0)
        killed_at = time.monotonic()
        process.kill()
        self.wait_for(lambda: self.nodes().get(name, process) != process)
        assert self.num_restarts()[name] == num_restarts + 1
        return killed_at

    def close(self) -> None:
        """Ends what a failed test would leave behind."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()

    def output(self) -> str:
        return self.stdout() + self._stderr.read_text()

    def stdout(self) -> str:
        return self._stdout.read_text()

    def log(self, node: str) -> pathlib.Path:
        return self.workdir / "logs" / f"{node}.log"

    def rows(self, node: str) -> list[dict[str, str]]:
        path = self.workdir / "logs" / f"{node}.csv"
        return list(csv.DictReader(path.open())) if path.exists() else []

    def summary(self) -> dict:
        return json.loads((self.workdir / "summary.json").read_text())

    def wait_for_rows(self, *nodes: str, number: int = 1) -> None:
        """Waits until each of some nodes has written so many more rows."""
        counts = {node: len(self.rows(node)) + number for node in nodes}
        self.wait_for(lambda: all(len(self.rows(node)) >= n for node, n in counts.items()))

    def is_learning(self) -> bool:
        return bool(self.rows("learner"))

    def learner_steps(self) -> float:
        """Returns the learner's steps as of its newest row."""
        rows = self.rows("learner")
        return float(rows[-1]["learner_steps"]) if rows else 0.0

    def actor_steps(self, replay: int = 0) -> int:
        """Returns the steps through a replay server, all of them if it is the only one."""
        path = self.workdir / actor_steps_file(replay)
        return sum(read_counts(path)) if path.exists() else 0

    def checkpoints(self) -> list[str]:
        """Names the learner's checkpoints, oldest first."""
        folder = self.workdir / "checkpoints"
        return sorted(path.name for path in folder.glob("learner-" + 12 * "[0-9]"))

    def newest_checkpoint(self) -> int:
        """Returns the learner steps of the newest checkpoint."""
        return int(self.checkpoints()[-1].removeprefix("learner-"))

    def ended_with_a_checkpoint(self) -> bool:
        """Tells whether the newest checkpoint is that of the last step."""
        return self.newest_checkpoint() == self.summary()["learner_steps"]


def seconds_since(time_before: float) -> str:
    return f"{time.monotonic() - time_before:.0f} s"
