"""Tests of processes that are forked from one that has imported everything."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import TIMEOUT_SECONDS, is_alive, wait_for

from apex_agents.nodes.fork_server import (
    ChildProcess,
    ForkedProcess,
    close_server,
    has_server,
    open_server,
    script_argv,
    start_process,
)

TELL = """
import json, os, sys
import numpy as np
report = {
    "arguments": sys.argv[1:],
    "colour": os.environ["COLOUR"],
    "inherited": os.path.realpath("/proc/self/fd/" + sys.argv[1]),
    "has_module": "xmlrpc.client" in sys.modules,
    "random": np.random.rand(),
}
print(json.dumps(report))
sys.exit(int(sys.argv[2]))
"""
WAIT = "import time; print('here', flush=True); time.sleep(100)"


@pytest.fixture
def server():
    yield open_server(("xmlrpc.client",))
    close_server()


class Script:
    """A script and the file for its output."""

    def __init__(self, folder, code: str):
        self.file, self.log = folder / "script.py", folder / "log"
        self.file.write_text(code)

    def start(self, *arguments: str, fds=(), env=None) -> ChildProcess:
        argv = script_argv(str(self.file), *arguments)
        with self.log.open("ab") as log:
            return start_process(argv, {**os.environ, "COLOUR": "red", **(env or {})}, log, fds)

    def reports(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_script_runs_as_if_it_had_been_started(exit_code, tmp_path, server):
    script = Script(tmp_path, TELL)
    with (tmp_path / "inherited").open("w") as inherited:
        fds = [inherited.fileno()]
        processes = [script.start(str(fds[0]), str(exit_code), fds=fds) for _ in range(2)]
    assert [process.wait() for process in processes] == [exit_code] * 2
    assert all(isinstance(process, ForkedProcess) for process in processes)
    reports = script.reports()
    for report in reports:
        assert report["arguments"] == [str(fds[0]), str(exit_code)]
        assert report["colour"] == "red"
        assert report["inherited"] == str(tmp_path / "inherited")
        assert report["has_module"]
    assert reports[0]["random"] != reports[1]["random"]


def test_a_process_for_which_the_users_program_has_waited_has_ended(tmp_path, server):
    process = Script(tmp_path, "raise SystemExit(3)").start()
    os.waitpid(process.pid, 0)  # A handler of SIGCHLD may do so.
    assert process.poll() == 0


def test_a_command_may_ignore_the_end_of_its_children(tmp_path):
    script = Script(tmp_path, WAIT)
    code = f"""
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from apex_agents.nodes import fork_server
fork_server.open_server([])
with open({str(script.log)!r}, "wb") as log:
    process = fork_server.start_process({script_argv(str(script.file))}, {{}}, log, [])
print(type(process).__name__, process.poll())
process.kill()
process.wait()
print(process.poll())
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert (result.stdout, result.stderr) == ("ForkedProcess None\n0\n", "")


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
        process.send_signal(number)
    else:
        os.kill(process.pid, number)
    assert process.wait() == process.poll() == -number
    process.send_signal(
        signal.SIGKILL
    )  # Does nothing: another process may have that number by now.


def test_a_request_that_is_too_large_starts_a_process_the_ordinary_way(tmp_path, server):
    script = Script(tmp_path, TELL)
    large = {str(i): "x" * 100_000 for i in range(10)}  # Less than the system's limit.
    process = script.start("0", "4", env=large)
    assert not isinstance(process, ForkedProcess)
    assert process.wait() == 4
    assert isinstance(script.start("0", "4"), ForkedProcess)


def test_without_its_server_a_process_is_started_the_ordinary_way(tmp_path, server, caplog):
    os.kill(server.pid, signal.SIGKILL)
    script = Script(tmp_path, TELL)
    processes = [script.start("0", "4") for _ in range(2)]
    assert not any(isinstance(process, ForkedProcess) for process in processes)
    assert [process.wait() for process in processes] == [4, 4]
    for report in script.reports():
        assert (report["colour"], report["has_module"]) == ("red", False)
    assert not has_server()
    (warning,) = caplog.messages  # One for all.
    assert "-9" in warning


def test_a_server_that_cannot_import_a_module_says_so(tmp_path, caplog):
    open_server(("json", "no_such_module"))
    assert Script(tmp_path, TELL).start("0", "4").wait() == 4
    assert not has_server()
    (warning,) = caplog.messages
    assert "ModuleNotFoundError: No module named 'no_such_module'" in warning


@pytest.mark.parametrize("has_forks", [True, False])
@pytest.mark.parametrize("name", ["random", "tree", "json"])
def test_modules_of_the_folder_take_the_place_of_no_library(name, has_forks, tmp_path, monkeypatch):
    folder = tmp_path / "users"
    folder.mkdir()
    (folder / f"{name}.py").write_text("raise ImportError('the one of the user')")
    monkeypatch.chdir(folder)
    script = Script(folder, f"import os, {name}; print({name}.__file__); print(os.getcwd())")
    if has_forks:
        open_server(("apex_agents.config",))
    try:
        assert script.start().wait() == 0, script.log.read_text()
        assert has_server() == has_forks
    finally:
        close_server()
    module, folder_of_process = script.log.read_text().splitlines()
    assert not module.startswith(str(folder))
    assert folder_of_process == str(folder)


def test_the_server_ends_with_its_starter():
    code = (
        "import os; from apex_agents.nodes.fork_server import open_server;"
        "print(open_server().pid, flush=True); os._exit(0)"
    )
    with os.popen(f"{sys.executable} -c '{code}'") as output:
        pid = int(output.read())
    wait_for(lambda: not is_alive(pid))
