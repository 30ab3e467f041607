"""Tests of the supervisor, on processes that are objects here, and on real ones."""

from __future__ import annotations

import collections
import functools
import itertools
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import psutil
import pytest
from waiting import TIMEOUT_SECONDS, is_alive, wait_for

from apex_agents.nodes.process import EXIT_MOVED, Exit, NodeCommand, NodeStatus
from apex_agents.nodes.supervisor import NodeEvent, NodeFailure, RestartPolicy, Supervisor
from apex_agents.waits import LACKS, STOP, WORKS, Wait

NEVER = float("inf")
FAILED = Exit("failed with exit code 3", from_outside=False, exit_code=3)
KILLED = Exit("was killed", from_outside=True, exit_code=-9)
MOVED = Exit("follows its replay", from_outside=True, exit_code=EXIT_MOVED)
STOPPED = Exit("was stopped", from_outside=True, exit_code=0)
ABORTED = Exit("was ended by SIGABRT", from_outside=False, exit_code=-6)
POLICY = RestartPolicy(5, 60.0, first_delay_seconds=0.001)


class Process:
    """A process that ends, or does not, as a test wants it to.

    Attributes:
      on_event: receives "SIGTERM", "SIGKILL", "SIGABRT" and "exit".
    """

    host = "here"
    pid = 7

    def __init__(
        self,
        ended: Exit | None = None,
        messages: bytes = WORKS,
        num_polls: float = 0,
        wait: Wait | None = None,
    ):
        """Take how it ended, what it said, polls from SIGTERM to its exit, what it waits for."""
        self._ended, self._messages, self._num_polls = ended, messages, num_polls
        self._wait = wait
        self._is_stopping = False
        self.on_event: Callable[[str], None] = lambda event: None

    def poll(self) -> Exit | None:
        if self._is_stopping and self._ended is None:
            self._num_polls -= 1
            if self._num_polls < 0:
                self._ended = STOPPED
                self.on_event("exit")
        return self._ended

    def messages(self) -> bytes:
        return self._messages

    def wait(self) -> Wait | None:
        return self._wait

    def abort(self) -> None:
        self._ended = ABORTED
        self.on_event("SIGABRT")

    def terminate(self) -> None:
        self._is_stopping = True
        self.on_event("SIGTERM")

    def kill(self) -> None:
        self._ended = self._ended or KILLED
        self.on_event("SIGKILL")


class Run:
    """A supervisor over processes of nodes, which follow each other in these lists.

    Attributes:
      events: what happened to the processes, by the names of their nodes.
    """

    def __init__(
        self,
        policy: RestartPolicy = POLICY,
        last: str = "",
        stop_seconds: float = 30.0,
        **nodes: Sequence[Process | OSError],
    ):
        self._waiting = {name: collections.deque(processes) for name, processes in nodes.items()}
        self.reports: list[NodeEvent] = []
        self.records: list[dict[str, NodeStatus]] = []
        self.events: list[tuple[str, str]] = []
        self.on_event: dict[tuple[str, str], Callable[[], None]] = {}
        commands = [
            NodeCommand(name, (), {}, pathlib.Path(f"{name}.log"), (), stop_seconds, name == last)
            for name in nodes
        ]
        self.supervisor = Supervisor(
            commands, policy, self._report, self.records.append, self._start, poll_seconds=0.001
        )

    def run(self) -> NodeFailure | None:
        return self.supervisor.run()

    def num_left(self, name: str) -> int:
        """Counts the processes that were not started."""
        return len(self._waiting[name])

    def _report(self, event: NodeEvent) -> None:
        self.reports.append(event)
        self._call(event.node, "report")

    def _start(self, command: NodeCommand, num_restarts: int) -> Process:
        process = self._waiting[command.name].popleft()
        if isinstance(process, OSError):
            raise process
        process.on_event = functools.partial(self._call, command.name)
        return process

    def _call(self, name: str, event: str) -> None:
        self.events.append((name, event))
        self.on_event.get((name, event), lambda: None)()


def ends_the_run() -> Process:
    return Process(messages=WORKS + STOP)


@pytest.mark.parametrize(
    "processes",
    [
        [Process(KILLED), ends_the_run()],
        [Process(FAILED), ends_the_run()],
        [Process(KILLED, b""), ends_the_run()],  # While it started.
        # It has worked once, so that it gets all its restarts.
        [Process(KILLED), Process(FAILED, b""), ends_the_run()],
        [OSError(11, "no room"), ends_the_run()],
    ],
)
def test_a_node_that_dies_is_restarted(processes):
    num_deaths = len(processes) - 1
    run = Run(a=list(processes), b=[Process()])
    assert run.run() is None
    assert run.num_left("a") == 0
    started = [process for process in processes[:-1] if isinstance(process, Process)]
    assert run.events.count(("a", "SIGKILL")) == len(started)  # Child processes, too.
    assert [(event.node, event.num_recent) for event in run.reports] == [
        ("a", i + 1) for i in range(num_deaths)
    ]
    assert run.records[-1]["a"] == NodeStatus(7, False, num_deaths, "here", 0)
    assert run.records[-1]["b"] == NodeStatus(7, False, 0, "here", 0)


def test_restarts_that_follow_a_replay_do_not_count():
    moved = [Process(MOVED) for _ in range(POLICY.max_restarts + 1)]
    run = Run(a=[*moved, Process(KILLED), *moved, ends_the_run()])
    assert run.run() is None
    assert [event.num_recent for event in run.reports] == [0] * len(moved) + [1] * (len(moved) + 1)
    assert "allowed" not in str(run.reports[0])
    assert run.records[-1]["a"].num_restarts == 2 * len(moved) + 1


@pytest.mark.parametrize("ended", [FAILED, Exit("crashed", from_outside=False, exit_code=-6)])
def test_a_node_that_fails_before_it_works_ends_the_run(ended):
    run = Run(a=[Process(ended, b""), ends_the_run()], b=[Process()])
    failure = run.run()
    assert (failure.node, failure.log) == ("a", pathlib.Path("a.log"))
    assert failure.exit.exit_code == ended.exit_code
    assert run.reports == []
    assert run.num_left("a") == 1
    assert ("b", "SIGTERM") in run.events


@pytest.mark.parametrize(
    ("make", "exit_code", "named"),
    [
        (lambda: Process(FAILED), 3, "failed with exit code 3"),
        (lambda: OSError(11, "no room"), None, "no room"),
        (lambda: Process(wait=Wait("reset", 0.0, limit_seconds=0.0)), None, "reset"),
    ],
)
def test_too_many_restarts_end_the_run(make, exit_code, named):
    run = Run(POLICY._replace(max_restarts=2), a=[make() for _ in range(4)], b=[Process()])
    failure = run.run()
    assert (failure.node, failure.exit.exit_code) == ("a", exit_code)
    assert named in failure.exit.description
    assert run.num_left("a") == 1
    assert ("b", "SIGTERM") in run.events


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        # They double up to their maximum, also for a node that is restarted for days.
        (RestartPolicy(4, 60.0, 0.001, 0.003), [0.001, 0.002, 0.003, 0.003]),
        (RestartPolicy(1100, 1e9, 1e-9, 1e-6), [*[1e-9 * 2**i for i in range(10)], *[1e-6] * 1090]),
    ],
)
def test_delays(policy, delays):
    run = Run(policy, a=[Process(FAILED)] * (len(delays) + 1))
    assert run.run().node == "a"
    assert [event.delay_seconds for event in run.reports] == delays


def test_restarts_outside_of_the_window_are_forgotten():
    run = Run(RestartPolicy(1, 0.0, 0.001), a=[*[Process(FAILED)] * 5, ends_the_run()])
    assert run.run() is None
    assert [event.num_recent for event in run.reports] == [1] * 5


@pytest.mark.parametrize("messages", [WORKS, b""])
def test_a_node_that_waits_for_longer_than_it_may_is_restarted(messages):
    stuck = Process(messages=messages, wait=Wait("step of environment 3", 0.0, limit_seconds=0.0))
    run = Run(a=[stuck, ends_the_run()], b=[Process(wait=Wait("data", 0.0))])
    assert run.run() is None
    assert run.events[:2] == [("a", "SIGABRT"), ("a", "SIGKILL")]
    (event,) = run.reports
    assert (event.node, event.num_recent, event.exit.from_outside) == ("a", 1, True)
    assert "step of environment 3" in event.exit.description
    assert run.records[-1]["a"].num_restarts == 1


def test_a_long_wait_is_reported_once_and_the_node_lives():
    waits = Process(wait=Wait("an answer", 0.0, notice_seconds=0.0), num_polls=3)
    run = Run(a=[waits], b=[ends_the_run()])
    run.on_event["a", "report"] = run.supervisor.stop
    assert run.run() is None
    assert [(event.node, event.exit) for event in run.reports] == [("a", None)]
    assert "an answer" in run.reports[0].description
    assert ("a", "SIGABRT") not in run.events


def test_what_a_node_lacks_is_reported_once_and_it_lives():
    run = Run(a=[Process(messages=WORKS + LACKS, num_polls=3)], b=[ends_the_run()])
    run.on_event["a", "report"] = run.supervisor.stop
    assert run.run() is None
    (event,) = run.reports
    assert (event.node, event.exit) == ("a", None)
    assert "could not save or read; a.log says what" in event.description


def test_waits_before_a_supervisor_began_are_not_counted():
    """So that time for which it was stopped is not either."""
    ready = Process(wait=Wait("step", 1e9, limit_seconds=1e6))
    run = Run(a=[ready], b=[Process(FAILED), ends_the_run()])
    assert run.run() is None
    assert ("a", "SIGABRT") not in run.events


def test_one_node_is_stopped_after_the_others_have_exited():
    run = Run(last="a", a=[Process()], b=[Process(num_polls=3)], c=[ends_the_run()])
    assert run.run() is None
    assert set(run.events[:2]) == {("b", "SIGTERM"), ("c", "SIGTERM")}
    assert run.events[2:] == [("c", "exit"), ("b", "exit"), ("a", "SIGTERM"), ("a", "exit")]


@pytest.mark.parametrize("is_told_to_kill", [True, False])
def test_a_node_that_does_not_exit_is_killed(is_told_to_kill):
    seconds = 30.0 if is_told_to_kill else 0.0
    run = Run(stop_seconds=seconds, last="b", a=[Process(num_polls=NEVER)], b=[ends_the_run()])
    if is_told_to_kill:
        run.on_event["a", "SIGTERM"] = run.supervisor.kill
    assert run.run() is None
    reports = [] if is_told_to_kill else [("a", "report")]
    assert run.events[: 2 + len(reports)] == [("a", "SIGTERM"), *reports, ("a", "SIGKILL")]
    assert [event.exit for event in run.reports] == [None] * len(reports)


def test_stopping_does_not_wait_for_a_restart():
    run = Run(RestartPolicy(5, 60.0, 1000.0, 1000.0), a=[Process(FAILED)])
    run.on_event["a", "report"] = run.supervisor.stop
    assert run.run() is None
    assert run.records[-1]["a"] == NodeStatus(None, False, 1)


def test_sentences():
    restarted = Run(POLICY._replace(max_restarts=2), a=[Process(FAILED)] * 3)
    failure = restarted.run()
    assert str(restarted.reports[1]) == (
        "Node a failed with exit code 3; it restarts in 0.002 s "
        "(restart 2 of 2 allowed within 60 s)."
    )
    assert failure.exit.description == "failed with exit code 3, after 2 restarts within 60 s"
    early = Run(a=[Process(FAILED, b"")]).run()
    assert early.exit.description == "failed with exit code 3 before its first step"
    killed = Run(stop_seconds=0.0, a=[Process(num_polls=NEVER)], b=[ends_the_run()])
    killed.run()
    assert str(killed.reports[0]) == "Node a did not exit within 0 s and was killed."


# Real processes.

WORK = """
import os, signal, sys, time
from apex_agents.waits import WORKS, NodeMemory
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
NodeMemory(int(os.environ["APEX_AGENTS_MEMORY"])).say(WORKS)
print("works", os.environ["APEX_AGENTS_NUM_RESTARTS"], flush=True)
time.sleep(1000)
"""


# Acts like a user-defined environment that starts a simulator, and then fails.
FAIL = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print("child", child.pid, flush=True)
sys.exit(1)
"""


class RealRun:
    """Runs a supervisor in a thread over nodes that all run the same script."""

    def __init__(
        self,
        folder: pathlib.Path,
        *names: str,
        stop_seconds: float = 1000.0,
        script: str = WORK,
    ):
        self.logs = {name: folder / f"{name}.log" for name in names}
        self.reports: list[NodeEvent] = []
        self.records: list[dict[str, NodeStatus]] = []
        commands = [
            NodeCommand(name, [sys.executable, "-c", script], {}, log, (), stop_seconds)
            for name, log in self.logs.items()
        ]
        self._supervisor = Supervisor(commands, POLICY, self.reports.append, self.records.append)
        self.failure: NodeFailure | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.failure = self._supervisor.run()

    def process(self, name: str, log: str) -> psutil.Process:
        """Find the process of a node once this is in its log."""
        path = self.logs[name]
        wait_for(lambda: path.exists() and log in path.read_text(), lambda: self.reports)
        wait_for(lambda: self.records and self.records[-1][name].is_alive)
        return psutil.Process(self.records[-1][name].pid)

    def stop(self) -> None:
        self._supervisor.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()


def test_a_killed_node_is_restarted_and_no_other(tmp_path):
    run = RealRun(tmp_path, "a", "b")
    first, other = (run.process(name, "works 0") for name in "ab")
    first.kill()
    second = run.process("a", "works 1")
    assert run.process("b", "works 0") == other and other.is_running()
    assert second != first
    run.stop()
    assert run.failure is None
    assert not other.is_running() and not second.is_running()
    history = [(record["a"].is_alive, record["a"].num_restarts) for record in run.records]
    history = [state for state in history if state != (False, 0)]  # It may be seen before a check.
    assert [state for state, _ in itertools.groupby(history)] == [
        *[(True, 0), (False, 1), (True, 1)],  # Alive, waiting for its next process, alive again.
        (False, 1),
    ]
    assert [state for state, _ in itertools.groupby(record["b"] for record in run.records)] == [
        NodeStatus(other.pid, True, 0),
        NodeStatus(other.pid, False, 0, "", 0),
    ]
    (event,) = run.reports
    assert (event.node, event.exit.exit_code) == ("a", -signal.SIGKILL)


def test_what_a_node_has_started_ends_with_the_run(tmp_path):
    run = RealRun(tmp_path, "a", script=FAIL)
    run.join()
    assert run.failure.exit.exit_code == 1
    pid = int(run.logs["a"].read_text().split()[1])
    wait_for(lambda: not is_alive(pid))


def test_a_node_that_is_suspended_is_killed(tmp_path):
    run = RealRun(tmp_path, "a", stop_seconds=0.0)
    run.process("a", "works").suspend()
    run.stop()
    assert [(event.node, event.exit) for event in run.reports] == [("a", None)]
