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

from apex_agents.nodes.process import EXIT_MOVED, STOP, WORKS, LocalNodeProcess, NodeCommand
from apex_agents.stopwatch import Stopwatch

# Says that it works, as `node.report_ready` does, and exits when it is told to.
WORK = """
import os, signal, socket, subprocess, sys, time
channel = socket.socket(fileno=int(os.environ["APEX_AGENTS_CHANNEL"]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
channel.send(b"w")
print("works", os.environ["APEX_AGENTS_NUM_RESTARTS"], flush=True)
"""
SLEEP = "time.sleep(1000)\n"


@pytest.fixture
def log(tmp_path) -> pathlib.Path:
    return tmp_path / "a.log"


@pytest.fixture
def start(log) -> Iterator[Callable[..., LocalNodeProcess]]:
    """Starts processes, each once it has said that it works, and kills them in the end."""
    started = []

    def start_process(code: str, num_restarts: int = 0, fds=()) -> LocalNodeProcess:
        command = NodeCommand("a", [sys.executable, "-c", code], {}, log, fds)
        started.append(LocalNodeProcess(command, num_restarts))
        wait_for(lambda: WORKS in started[-1].messages())
        return started[-1]

    yield start_process
    for process in started:
        process.kill()


@pytest.mark.parametrize(
    ("number", "exit_code", "from_outside"),
    [
        (signal.SIGKILL, -signal.SIGKILL, True),
        (signal.SIGSEGV, -signal.SIGSEGV, False),
        (signal.SIGTERM, 0, True),  # The script handles it.
    ],
)
def test_exit_by_a_signal(number, exit_code, from_outside, start):
    process = start(WORK + SLEEP)
    assert process.poll() is None
    os.kill(process.pid, number)
    wait_for(lambda: process.poll() is not None)
    ended = process.poll()
    assert (ended.exit_code, ended.from_outside) == (exit_code, from_outside)


def test_exit_by_a_failure(start):
    process = start(WORK + "channel.send(b's')\nsys.exit(3)\n")
    wait_for(lambda: process.poll() is not None)
    ended = process.poll()
    assert (ended.exit_code, ended.from_outside) == (3, False)
    assert process.messages() == WORKS + STOP


def test_it_is_told_the_addresses_of_the_replays(start, log):
    process = start(WORK + "print(channel.recv(100), flush=True)\n" + SLEEP)
    process.send("first:1,second:2")
    wait_for(lambda: log.read_text().endswith("b'first:1,second:2\\n'\n"))


def test_a_node_that_follows_its_replay_may_be_restarted(start):
    process = start(WORK + f"sys.exit({EXIT_MOVED})\n")
    wait_for(lambda: process.poll() is not None)
    assert process.poll().from_outside
    process.send("first:1")  # It is gone: nothing happens.


def test_terminate_sends_sigterm(start):
    process = start(WORK + SLEEP)
    process.terminate()
    wait_for(lambda: process.poll() is not None)
    assert process.poll().exit_code == 0


WRITE = """
from apex_agents.waits import NodeMemory, Waiting, write_waits
memory = NodeMemory(int(os.environ["APEX_AGENTS_MEMORY"]))
write_waits(memory)
"""


def test_what_it_waits_for_is_seen_while_it_hangs_with_the_lock_of_python(start):
    hang = "import ctypes; ctypes.PyDLL(None).sleep(1000)\n"  # PyDLL keeps the lock.
    process = start(f"{WORK}{WRITE}with Waiting('step', limit_seconds=9.0):\n    {hang}")
    wait_for(process.wait)
    assert (process.wait().what, process.wait().limit_seconds) == ("step", 9.0)


def test_abort_writes_where_its_threads_are(start, log):
    hang = "def step_of_the_environment():\n    ctypes.PyDLL(None).sleep(1000)\n"
    call = "import ctypes, faulthandler; faulthandler.enable()\n"
    process = start(f"{hang}{call}{WORK}{WRITE}with Waiting('x'): step_of_the_environment()\n")
    wait_for(process.wait)
    process.abort()
    assert process.poll().exit_code == -signal.SIGABRT
    assert "step_of_the_environment" in log.read_text()


def test_abort_ends_a_process_that_is_stopped(start):
    process = start(f"{WORK}import faulthandler; faulthandler.enable()\n{SLEEP}")
    process.suspend()
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.abort()
    assert process.poll().exit_code == -signal.SIGKILL


def test_a_failure_is_described_by_its_error(start):
    process = start(f"{WORK}{WRITE}memory.fail(RuntimeError('no\\nroom'))\nsys.exit(1)\n")
    wait_for(lambda: process.poll() is not None)
    assert process.poll().description == "failed with exit code 1 (RuntimeError: no)"


def test_suspend_and_resume_reach_what_it_has_started(start, log):
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    process = start(f"{WORK}print({child}.pid, flush=True)\n{SLEEP}")
    wait_for(lambda: len(log.read_text().splitlines()) == 2)
    both = [psutil.Process(pid) for pid in (process.pid, int(log.read_text().split()[-1]))]
    process.suspend()
    wait_for(lambda: {one.status() for one in both} == {psutil.STATUS_STOPPED})
    process.resume()
    wait_for(lambda: psutil.STATUS_STOPPED not in {one.status() for one in both})


def test_logs_of_all_processes_are_in_one_file(start, log):
    lines = ""
    for num_restarts in range(2):
        start(WORK + SLEEP, num_restarts)
        lines += f"works {num_restarts}\n"
        wait_for(lambda: log.read_text() == lines)  # noqa: B023  # It is called here.


def test_kill_reaches_what_it_has_started(start, log):
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    process = start(f"{WORK}print({child}.pid, flush=True)\n{SLEEP}")
    wait_for(lambda: len(log.read_text().splitlines()) == 2)
    child_pid = int(log.read_text().splitlines()[1])
    assert is_alive(child_pid)
    process.kill()
    assert process.poll().exit_code == -signal.SIGKILL
    wait_for(lambda: not is_alive(child_pid))


def test_a_process_inherits_what_it_needs_and_nothing_else(start, log, tmp_path):
    listing = WORK + "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')), flush=True)\n"
    with (tmp_path / "job").open("w") as job, (tmp_path / "other").open("w"):
        start(listing + SLEEP, fds=(job.fileno(),))
        wait_for(lambda: log.read_text().endswith("]\n"))
        fds = eval(log.read_text().splitlines()[1])
        # Input, output, errors, channel, memory, job; the listing's own comes on top.
        assert job.fileno() in fds and len(fds) == 7


def test_every_process_of_a_node_measures_from_the_start_of_the_run(log):
    stopwatch = Stopwatch(12.25)
    pickled = pickle.dumps(stopwatch)
    code = f"import pickle; print(pickle.loads({pickled!r}).started_at, flush=True)"
    command = NodeCommand("a", [sys.executable, "-c", code], {}, log, stopwatch=stopwatch)
    for num_restarts in (0, 1):
        process = LocalNodeProcess(command, num_restarts)
        wait_for(process.poll)
        process.kill()
    assert log.read_text().split() == ["12.25", "12.25"]


def test_a_log_that_cannot_be_opened(log):
    log.mkdir()
    with pytest.raises(IsADirectoryError):
        LocalNodeProcess(NodeCommand("a", [sys.executable], {}, log), 0)


def test_the_channel_closes_with_the_supervisor(log):
    watches = f"""{WORK}
try:
    channel.recv(1)
except ConnectionError:  # What it had written was never read.
    pass
print("alone", flush=True)
"""
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
    wait_for(lambda: "alone" in log.read_text())
