"""Tests of a host agent as an ordinary object; as an actor of Ray: `test_cluster.py`."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from apex_agents.cluster.file_sync import Change, FileState
from apex_agents.cluster.host_agent import HostAgent, ProcessReport
from apex_agents.nodes.process import Exit, NodeCommand
from apex_agents.waits import Wait

ENDED = Exit("was killed", from_outside=True)


class Process:
    """A process that only notes its signals."""

    host = ""

    def __init__(self, pid: int):
        self.pid = pid
        self.signals: list[str] = []

    def poll(self) -> Exit | None:
        return ENDED if "SIGKILL" in self.signals else None

    def messages(self) -> bytes:
        return b"w"

    def wait(self) -> Wait | None:
        return Wait("data", 3.0)

    def suspend(self) -> None:
        self.signals.append("SIGSTOP")

    def resume(self) -> None:
        self.signals.append("SIGCONT")

    def abort(self) -> None:
        self.signals.append("SIGABRT")

    def terminate(self) -> None:
        self.signals.append("SIGTERM")

    def kill(self) -> None:
        self.signals.append("SIGKILL")


class Node:
    """A host agent and the processes that it has started."""

    def __init__(self, workdir: pathlib.Path):
        self.processes: list[Process] = []
        self._log = workdir / "logs" / "actor_0.log"
        self.agent = HostAgent("actor_0", str(workdir), self._start, lock_wait_seconds=0.0)

    def _start(self, command: NodeCommand, num_restarts: int) -> Process:
        self.processes.append(Process(100 + len(self.processes)))
        return self.processes[-1]

    def start(self, num_restarts: int = 0) -> None:
        self.agent.start(NodeCommand("actor_0", (), {}, self._log), b"", 0, num_restarts)


@pytest.fixture
def node(tmp_path) -> Node:
    node = Node(tmp_path)
    assert node.agent.prepare(()) == {}
    return node


def test_it_reports_on_its_process(node):
    assert node.agent.report({}) == ProcessReport()
    node.start()
    assert node.agent.report({}) == ProcessReport(0, 100, None, b"w", Wait("data", 3.0), [], [])
    node.agent.ask(0, "kill")
    assert node.agent.report({}).exit == ENDED


def test_a_start_that_is_repeated_starts_nothing(node):
    node.start()
    node.start()
    assert len(node.processes) == 1
    node.start(num_restarts=1)
    assert [process.signals for process in node.processes] == [["SIGKILL"], []]
    assert (node.agent.report(None).num_restarts, node.agent.report(None).pid) == (1, 101)


def test_a_call_that_comes_too_late_reaches_no_other_process(node):
    node.start()
    node.start(num_restarts=1)
    methods = ("suspend", "resume", "terminate", "abort", "kill")
    for method in methods:
        node.agent.ask(0, method)
    assert node.processes[1].signals == []
    for method in methods:
        node.agent.ask(1, method)
    assert node.processes[1].signals == ["SIGSTOP", "SIGCONT", "SIGTERM", "SIGABRT", "SIGKILL"]


def test_a_host_agent_starts_nothing_before_it_is_prepared(tmp_path):
    node = Node(tmp_path)
    with pytest.raises(RuntimeError):
        node.start()
    assert node.processes == []


# Starts a process as a host agent, and waits until it is killed.
OTHER_AGENT = """
import sys, time
from apex_agents.cluster.host_agent import HostAgent
from apex_agents.nodes.process import LocalNodeProcess, NodeCommand
import pathlib

def start(command, num_restarts):
    argv = [sys.executable, "-c", "import time; time.sleep(1000)"]
    return LocalNodeProcess(command._replace(argv=argv), num_restarts)

workdir = pathlib.Path(sys.argv[1])
agent = HostAgent("actor_0", str(workdir), start)
agent.prepare(())
agent.start(NodeCommand("actor_0", (), {}, workdir / "logs" / "actor_0.log"), b"", 0, 0)
print(agent.report(None).pid, flush=True)
time.sleep(1000)
"""


def test_a_new_host_agent_waits_for_the_process_of_the_old_one(tmp_path):
    command = [sys.executable, "-c", OTHER_AGENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as old:
        process = int(old.stdout.readline())
        old.kill()
    agent = Node(tmp_path).agent
    try:
        with pytest.raises(TimeoutError):
            agent.prepare(())
    finally:
        os.kill(process, signal.SIGKILL)
    patient = HostAgent("actor_0", str(tmp_path), lock_wait_seconds=60.0)
    assert list(patient.prepare(None)) == ["logs/actor_0.log"]


def test_changes_are_sent_until_they_are_known(node, tmp_path):
    log = tmp_path / "logs" / "actor_0.csv"
    node.agent.write(Change("logs/actor_0.csv", 1, 0, b"step\n1\n"))
    node.start()
    log.write_text("step\n1\n2\n")
    known = {"logs/actor_0.csv": FileState(1, 7)}
    for _ in range(2):
        (change,) = node.agent.report(known).changes
        assert (change.offset, change.content) == (7, b"2\n")
    assert node.agent.report({change.path: change.state}).changes == []
    assert not node.agent.report(None).changes
    log.unlink()
    assert node.agent.report(known).removed == ["logs/actor_0.csv"]


def test_files_are_prepared_before_the_first_process_only(node, tmp_path):
    for name in ("actor_0.csv", "actor_0_envs.csv"):
        (tmp_path / "logs" / name).write_text("step\n")
    assert len(node.agent.prepare(None)) == 2
    assert list(node.agent.prepare(["logs/actor_0.csv"])) == ["logs/actor_0.csv"]
    node.start()
    assert node.agent.prepare(()) is None  # What is here is newer than what the command has.
    assert (tmp_path / "logs" / "actor_0.csv").exists()
