"""Tests of the supervisor, on small processes that die in every way a node can."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import signal
import sys
import threading
import time

import psutil
import pytest

from apex_agents.nodes import supervisor as supervision
from apex_agents.nodes.process import NodeCommand, NodeStatus
from apex_agents.nodes.supervisor import Supervisor

# A node that reports that it works, as `node.report_ready` does, and leaves when it is told to.
WORKS = """
import os, signal, socket, sys, time
channel = socket.socket(fileno=int(os.environ["APEX_AGENTS_CHANNEL"]))
channel.send(b"w")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("works", os.environ["APEX_AGENTS_NUM_RESTARTS"], flush=True)
"""
SLEEP = "time.sleep(60)\n"


@pytest.fixture
def quick(monkeypatch):
    """Lets nodes start again soon."""
    monkeypatch.setattr(supervision, "_FIRST_DELAY_SECONDS", 0.05)


class Nodes:
    """Runs a supervisor in a thread, over nodes given as Python code."""

    def __init__(self, folder: pathlib.Path, **code: str):
        self.logs = {name: folder / f"{name}.log" for name in code}
        self.code = code
        self.reports: list[str] = []
        self.records: list[dict[str, NodeStatus]] = []
        self.failure = None

    def start(
        self, max_restarts: int = 5, window_seconds: float = 60.0, last: str = "", **settings
    ) -> Nodes:
        commands = [
            NodeCommand(
                name,
                [sys.executable, "-c", code],
                {},
                self.logs[name],
                stops_last=name == last,
                **settings,
            )
            for name, code in self.code.items()
        ]
        self.supervisor = Supervisor(
            commands, max_restarts, window_seconds, self.reports.append, self.records.append
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def _run(self) -> None:
        self.failure = self.supervisor.run()

    def join(self, timeout: float = 20.0) -> None:
        self.thread.join(timeout)
        assert not self.thread.is_alive()

    def wait_for_log(self, name: str, text: str) -> None:
        deadline = time.monotonic() + 20
        while not (self.logs[name].exists() and text in self.logs[name].read_text()):
            assert time.monotonic() < deadline, self.reports
            time.sleep(0.02)

    def process(self, name: str) -> psutil.Process:
        (node,) = [node for node in self.supervisor._nodes if node.command.name == name]
        return psutil.Process(node.process.pid)


def test_nodes_run_until_they_are_stopped(tmp_path):
    nodes = Nodes(tmp_path, a=WORKS + SLEEP, b=WORKS + SLEEP).start()
    for name in "ab":
        nodes.wait_for_log(name, "works 0")
    processes = [nodes.process(name) for name in "ab"]
    nodes.supervisor.stop()
    nodes.join()
    assert nodes.failure is None
    assert nodes.reports == []
    assert [p for p in processes if p.is_running()] == []
    pids = [process.pid for process in processes]
    assert nodes.records == [
        {name: NodeStatus(pid, True, 0) for name, pid in zip("ab", pids, strict=True)},
        {name: NodeStatus(pid, False, 0) for name, pid in zip("ab", pids, strict=True)},
    ]


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (
            signal.SIGKILL,
            "was killed (SIGKILL; by somebody, or by the kernel because memory ran out)",
        ),
        (signal.SIGSEGV, "ended by SIGSEGV"),
        (signal.SIGTERM, "left unasked"),
    ],
)
def test_a_node_that_dies_starts_again(number, what, quick, tmp_path):
    nodes = Nodes(tmp_path, a=WORKS + SLEEP, b=WORKS + SLEEP).start()
    for name in "ab":
        nodes.wait_for_log(name, "works 0")
    other = nodes.process("b")
    nodes.process("a").send_signal(number)
    nodes.wait_for_log("a", "works 1")
    assert nodes.process("b") == other  # Nobody else was disturbed.
    # Alive, waiting for its next process, alive again.
    history = [(record["a"].is_alive, record["a"].num_restarts) for record in nodes.records]
    assert [h for h, _ in itertools.groupby(history)][-3:] == [(True, 0), (False, 1), (True, 1)]
    assert nodes.records[-1]["a"].pid == nodes.process("a").pid
    nodes.supervisor.stop()
    nodes.join()
    assert nodes.failure is None
    assert nodes.reports == [
        f"Node a {what}; it starts again in 0.05 s (restart 1 of 5 allowed within 60 s)."
    ]


def test_too_many_restarts_end_the_run(quick, tmp_path):
    nodes = Nodes(tmp_path, a=WORKS + "sys.exit(3)\n", b=WORKS + SLEEP).start(max_restarts=2)
    nodes.join()
    assert nodes.failure == (
        "a",
        "failed with exit code 3, after 2 restarts within 60 s",
        nodes.logs["a"],
    )
    assert nodes.logs["a"].read_text() == "works 0\nworks 1\nworks 2\n"
    # Each time it waits twice as long.
    waits = [re.search(r"again in (\S+) s", report)[1] for report in nodes.reports]
    assert waits == ["0.05", "0.1"]
    assert not nodes.supervisor._nodes[1].is_running()


def test_restarts_outside_of_the_window_are_forgotten(quick, tmp_path):
    fails_late = WORKS + "time.sleep(0.3)\nsys.exit(3)\n"
    nodes = Nodes(tmp_path, a=fails_late).start(max_restarts=1, window_seconds=0.2)
    nodes.wait_for_log("a", "works 4")
    nodes.supervisor.stop()
    nodes.join()
    assert nodes.failure is None


def test_a_node_that_fails_before_it_works_ends_the_run_at_once(tmp_path):
    nodes = Nodes(tmp_path, a="import no_such_module\n", b=WORKS + SLEEP).start()
    nodes.join()
    assert nodes.failure == (
        "a",
        "failed with exit code 1 before it began its work",
        nodes.logs["a"],
    )
    assert nodes.reports == []
    assert "No module named" in nodes.logs["a"].read_text()
    assert not nodes.supervisor._nodes[1].is_running()


def test_a_crash_before_it_works_ends_the_run_at_once(tmp_path):
    nodes = Nodes(tmp_path, a="import os; os.abort()\n").start()
    nodes.join()
    assert nodes.failure.reason == "ended by SIGABRT before it began its work"


def test_a_node_that_is_killed_while_it_starts_gets_another_chance(quick, tmp_path):
    starts = "import time; print('starts', flush=True)\n" + SLEEP
    nodes = Nodes(tmp_path, a=starts).start()
    nodes.wait_for_log("a", "starts")
    nodes.process("a").kill()
    nodes.wait_for_log("a", "starts\nstarts")
    nodes.supervisor.stop()
    nodes.join()
    assert nodes.failure is None


def test_a_node_that_has_worked_is_given_all_its_restarts(quick, tmp_path):
    # The process that worked is killed; the next one fails at its start.
    code = (
        """
import os, sys
if os.environ["APEX_AGENTS_NUM_RESTARTS"] == "1":
    sys.exit(1)
"""
        + WORKS
        + SLEEP
    )
    nodes = Nodes(tmp_path, a=code).start()
    nodes.wait_for_log("a", "works 0")
    nodes.process("a").kill()
    nodes.wait_for_log("a", "works 2")
    nodes.supervisor.stop()
    nodes.join()
    assert nodes.failure is None


def test_a_node_that_cannot_be_started_is_named(quick, tmp_path):
    nodes = Nodes(tmp_path, a="")
    (tmp_path / "a.log").mkdir()  # Where its output should go.
    nodes.start(max_restarts=1)
    nodes.join()
    assert nodes.failure.node == "a"
    assert nodes.failure.reason.startswith("could not be started (Is a directory), after 1 ")


def test_what_a_node_has_started_dies_with_it(quick, tmp_path):
    child = (
        WORKS
        + """
import subprocess
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
"""
    )
    nodes = Nodes(tmp_path, a=child + SLEEP).start()
    nodes.wait_for_log("a", "works 0\n")
    deadline = time.monotonic() + 20
    while len(nodes.logs["a"].read_text().split()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    grandchild = psutil.Process(int(nodes.logs["a"].read_text().split()[2]))
    nodes.process("a").kill()
    nodes.wait_for_log("a", "works 1\n")
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    nodes.supervisor.kill()
    nodes.join()


def test_one_node_leaves_after_the_others(tmp_path):
    notes_time = WORKS.replace(
        "sys.exit(0)", "(time.sleep(0.3), print(time.monotonic(), flush=True), sys.exit(0))"
    )
    nodes = Nodes(tmp_path, server=notes_time + SLEEP, a=notes_time + SLEEP, b=notes_time + SLEEP)
    nodes.start(last="server")
    for name in nodes.logs:
        nodes.wait_for_log(name, "works")
    nodes.supervisor.stop()
    nodes.join()
    left = {name: float(log.read_text().split()[-1]) for name, log in nodes.logs.items()}
    assert left["server"] > max(left["a"], left["b"]) + 0.25


def test_a_node_that_does_not_leave_is_killed(tmp_path):
    stays = WORKS + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('stays', flush=True)\n"
    nodes = Nodes(tmp_path, a=stays + SLEEP).start(stop_seconds=0.3)
    nodes.wait_for_log("a", "stays")
    nodes.supervisor.stop()
    nodes.join()
    assert nodes.reports == ["Node a did not leave and was killed."]
    assert nodes.failure is None


def test_a_node_that_is_stopped_with_sigstop_is_killed(tmp_path):
    nodes = Nodes(tmp_path, a=WORKS + SLEEP).start(stop_seconds=0.3)
    nodes.wait_for_log("a", "works")
    nodes.process("a").suspend()
    nodes.supervisor.stop()
    nodes.join()


def test_killing_does_not_wait(tmp_path):
    stays = WORKS + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('stays', flush=True)\n"
    nodes = Nodes(tmp_path, a=stays + SLEEP).start(stop_seconds=1000.0)
    nodes.wait_for_log("a", "stays")
    nodes.supervisor.stop()
    time.sleep(0.3)
    assert nodes.thread.is_alive()
    nodes.supervisor.kill()
    nodes.join(timeout=5)


def test_stopping_does_not_wait_for_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "_FIRST_DELAY_SECONDS", 1000.0)
    nodes = Nodes(tmp_path, a=WORKS + "sys.exit(3)\n").start()
    deadline = time.monotonic() + 20
    while not nodes.reports and time.monotonic() < deadline:
        time.sleep(0.02)
    nodes.supervisor.stop()
    nodes.join(timeout=5)
    assert nodes.failure is None


def test_the_channel_ends_with_the_supervisor(tmp_path):
    # The supervisor is killed: its node sees the end of the channel.
    watches = (
        WORKS
        + """
try:
    channel.recv(1)
except ConnectionError:  # What it had written was never read.
    pass
print("alone", flush=True)
"""
    )
    program = f"""
import pathlib, sys
from apex_agents.nodes.process import NodeCommand
from apex_agents.nodes.supervisor import Supervisor
log = pathlib.Path({str(tmp_path / "a.log")!r})
Supervisor([NodeCommand("a", [sys.executable, "-c", {watches!r}], {{}}, log)], 1, 1.0, print).run()
"""
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", program])
    nodes = Nodes(tmp_path, a="")
    nodes.wait_for_log("a", "works")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    nodes.wait_for_log("a", "alone")


def test_nodes_inherit_what_they_need_and_nothing_else(tmp_path):
    listing = WORKS + "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')), flush=True)\n"
    with (tmp_path / "job").open("w") as file:
        nodes = Nodes(tmp_path, a=listing + SLEEP).start(fds=(file.fileno(),))
        nodes.wait_for_log("a", "]")
        nodes.supervisor.stop()
        nodes.join()
        fds = eval(nodes.logs["a"].read_text().splitlines()[1])
        # Input, output, errors, the channel, the job; the listing's own comes on top.
        assert file.fileno() in fds and len(fds) == 6
