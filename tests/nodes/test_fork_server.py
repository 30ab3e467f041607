"""Tests of processes that are forked from one that has imported everything."""

import os
import signal
import sys
import time

import psutil
import pytest

from apex_agents.nodes import fork_server
from apex_agents.nodes.fork_server import ForkedProcess, ForkServer, start_process

TELL = """
import json, os, sys
import numpy as np
where = os.path.realpath("/proc/self/fd/" + sys.argv[1])
imported = "tensorflow" in sys.modules
print(json.dumps([sys.argv[1:], os.environ["COLOUR"], where, imported, np.random.rand()]))
sys.exit(int(sys.argv[2]))
"""
WAIT = "import time; print('here', flush=True); time.sleep(100)"


@pytest.fixture(scope="module")
def server():
    server = ForkServer()
    fork_server._server = server
    yield server
    fork_server._server = None
    server.close()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


class Script:
    """A script and the file for its output."""

    def __init__(self, folder, code: str):
        self.file, self.log = folder / "script.py", folder / "log"
        self.file.write_text(code)

    def start(self, *arguments: str, fds=()) -> ForkedProcess:
        argv = [sys.executable, str(self.file), *arguments]
        with self.log.open("ab") as log:
            return start_process(argv, {**os.environ, "COLOUR": "red"}, log, fds)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_script_runs_as_if_it_had_been_started(exit_code, tmp_path, server):
    script = Script(tmp_path, TELL)
    with (tmp_path / "inherited").open("w") as inherited:
        fds = [inherited.fileno()]
        processes = [script.start(str(fds[0]), str(exit_code), fds=fds) for _ in range(2)]
    assert [process.wait() for process in processes] == [exit_code] * 2
    assert all(isinstance(process, ForkedProcess) for process in processes)
    told = [eval(line, {"true": True}) for line in script.log.read_text().splitlines()]
    for arguments, colour, where, imported, _ in told:
        assert arguments == [str(fds[0]), str(exit_code)]
        assert (colour, where, imported) == ("red", str(tmp_path / "inherited"), True)
    assert told[0][-1] != told[1][-1]


def test_a_traceback_is_in_the_log(tmp_path, server):
    script = Script(tmp_path, "raise ValueError('bad')")
    assert script.start().wait() == 1
    assert "ValueError: bad" in script.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_a_child_in_a_session_of_its_own(number, tmp_path, server):
    process = Script(tmp_path, WAIT).start()
    assert psutil.Process(process.pid).ppid() == os.getpid()
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    if number == signal.SIGTERM:
        process.terminate()
    else:
        os.kill(process.pid, number)
    assert process.wait() == process.poll() == -number
    process.terminate()  # Nothing happens to whoever has that number by now.


def test_without_its_server_a_process_is_started_the_ordinary_way(tmp_path, monkeypatch):
    server = ForkServer()
    monkeypatch.setattr(fork_server, "_server", server)
    os.kill(server._process.pid, signal.SIGKILL)
    script = Script(tmp_path, TELL)
    assert script.start("0", "4").wait() == 4
    assert '"red"' in script.log.read_text()
    server.close()


def test_the_server_ends_with_its_starter():
    code = (
        "import os; from apex_agents.nodes.fork_server import ForkServer;"
        "print(ForkServer()._process.pid, flush=True); os._exit(0)"
    )
    with os.popen(f"{sys.executable} -c '{code}'") as output:
        pid = int(output.read())
    deadline = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(pid)
