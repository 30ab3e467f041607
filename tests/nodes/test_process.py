"""Tests of a node's process, on small scripts that end in every way a node can."""

from __future__ import annotations

import os
import pathlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest
from waiting import is_alive, wait_for

from apex_agents.nodes.process import EXIT_MOVED, LocalNodeProcess, NodeCommand
from apex_agents.stopwatch import Stopwatch
from apex_agents.waits import STOP, WORKS

# Says that it works, as nodes do, and exits when it is told to.
WORK = """
import faulthandler, os, signal, socket, subprocess, sys, time
from apex_agents.waits import STOP, WORKS, NodeMemory, Waiting, write_waits
faulthandler.enable()
memory = NodeMemory(int(os.environ["APEX_AGENTS_MEMORY"]))
write_waits(memory)
channel = socket.socket(fileno=int(os.environ["APEX_AGENTS_CHANNEL"]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
memory.say(WORKS)
print("works", os.environ["APEX_AGENTS_NUM_RESTARTS"], flush=True)
"""
SLEEP = "time.sleep(1000)\n"
HANG = """
import ctypes
def step_of_the_environment():
    ctypes.PyDLL(None).sleep(1000)  # PyDLL keeps Python's lock.
with Waiting("step", limit_seconds=9.0):
    step_of_the_environment()
"""


@pytest.fixture
def log(tmp_path) -> pathlib.Path:
    return tmp_path / "a.log"


@pytest.fixture
def start(log) -> Iterator[Callable[..., LocalNodeProcess]]:
    """Starts processes, each once it has said that it works, and kills them in the end."""
    started = []

    def start_process(code: str, num_restarts: int = 0, **command) -> LocalNodeProcess:
        argv = [sys.executable, "-c", code]
        started.append(LocalNodeProcess(NodeCommand("a", argv, {}, log, **command), num_restarts))
        wait_for(lambda: WORKS in started[-1].messages())
        return started[-1]

    yield start_process
    for process in started:
        process.kill()


@pytest.mark.parametrize(
    ("code", "number", "exit_code", "from_outside"),
    [
        (SLEEP, signal.SIGKILL, -signal.SIGKILL, True),
        (SLEEP, signal.SIGSEGV, -signal.SIGSEGV, False),
        (SLEEP, signal.SIGTERM, 0, True),  # The script handles it.
        ("sys.exit(3)", None, 3, False),
        (f"sys.exit({EXIT_MOVED})", None, EXIT_MOVED, True),
    ],
)
def test_ways_to_end(code, number, exit_code, from_outside, start):
    process = start(WORK + code)
    if number == signal.SIGTERM:
        process.terminate()
    elif number is not None:
        assert process.poll() is None
        os.kill(process.pid, number)
    wait_for(process.poll)
    ended = process.poll()
    assert (ended.exit_code, ended.from_outside) == (exit_code, from_outside)
    process.send("first:1")  # It is gone: nothing happens.


def test_what_it_has_said_is_known_after_its_end(start):
    process = start(f"{WORK}memory.say(STOP)\nmemory.fail(OSError('no\\nroom'))\nsys.exit(1)\n")
    wait_for(process.poll)
    assert process.messages() == WORKS + STOP
    assert process.poll().description == "failed with exit code 1 (OSError: no)"


def test_it_is_told_the_addresses_of_the_replays(start, log):
    process = start(WORK + "print(channel.recv(100), flush=True)\n" + SLEEP)
    process.send("first:1,second:2")
    wait_for(lambda: log.read_text().endswith("b'first:1,second:2\\n'\n"))


def test_a_process_that_hangs_with_the_lock_of_python_tells_where(start, log):
    process = start(WORK + HANG)
    wait_for(process.wait)
    assert (process.wait().what, process.wait().limit_seconds) == ("step", 9.0)
    process.abort()
    assert process.poll().exit_code == -signal.SIGABRT
    assert "step_of_the_environment" in log.read_text()


def test_abort_ends_a_process_that_is_stopped(start):
    process = start(WORK + SLEEP)
    process.suspend()
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.abort()
    assert process.poll().exit_code == -signal.SIGKILL


def test_signals_reach_what_it_has_started(start, log):
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    process = start(f"{WORK}print({child}.pid, flush=True)\n{SLEEP}")
    wait_for(lambda: len(log.read_text().splitlines()) == 2)
    both = [psutil.Process(pid) for pid in (process.pid, int(log.read_text().split()[-1]))]
    process.suspend()
    wait_for(lambda: {one.status() for one in both} == {psutil.STATUS_STOPPED})
    process.resume()
    wait_for(lambda: psutil.STATUS_STOPPED not in {one.status() for one in both})
    process.kill()
    assert process.poll().exit_code == -signal.SIGKILL
    wait_for(lambda: not is_alive(both[1].pid))


def test_processes_share_a_log_and_the_time_of_the_run(start, log):
    stopwatch = Stopwatch(12.25)
    code = f"import pickle; print(pickle.loads({pickle.dumps(stopwatch)!r}).started_at, flush=True)"
    for num_restarts in range(2):
        start(f"{WORK}{code}\n{SLEEP}", num_restarts, stopwatch=stopwatch)
    expected = ["works", "0", "12.25", "works", "1", "12.25"]
    wait_for(lambda: sorted(log.read_text().split()) == sorted(expected))


def test_a_process_inherits_what_it_needs_and_nothing_else(start, log, tmp_path):
    listing = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))), flush=True)"
    with (tmp_path / "job").open("w") as job, (tmp_path / "other").open("w"):
        start(listing + WORK + SLEEP, fds=(job.fileno(),))
        fds = eval(log.read_text().splitlines()[0])
        # Input, output, errors, channel, memory, job; the listing's own comes on top.
        assert job.fileno() in fds and len(fds) == 7


def test_a_log_that_cannot_be_opened(log):
    log.mkdir()
    with pytest.raises(IsADirectoryError):
        LocalNodeProcess(NodeCommand("a", [sys.executable], {}, log), 0)


def test_the_channel_closes_with_the_supervisor(log):
    watches = WORK + "print('alone', channel.recv(1), flush=True)"
    supervisor = f"""
import pathlib, sys, time
from apex_agents.nodes.process import LocalNodeProcess, NodeCommand
log = pathlib.Path({str(log)!r})
process = LocalNodeProcess(NodeCommand("a", [sys.executable, "-c", {watches!r}], {{}}, log), 0)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", supervisor]) as process:
        wait_for(lambda: log.exists() and "works" in log.read_text())
        process.kill()
    wait_for(lambda: "alone b''" in log.read_text())
