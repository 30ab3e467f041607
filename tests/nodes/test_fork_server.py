"""Tests of processes that are forked from one that has imported everything."""

import contextlib
import json
import os
import resource
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
sys.stdout.write(json.dumps(report) + "\\n")  # In one piece, beside that of another process.
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


def test_a_script_runs_as_if_it_had_been_started(tmp_path, server):
    script = Script(tmp_path, TELL)
    with (tmp_path / "inherited").open("w") as inherited:
        fds = [inherited.fileno()]
        processes = [script.start(str(fds[0]), code, fds=fds) for code in "03"]
    assert [process.wait() for process in processes] == [0, 3]
    assert all(isinstance(process, ForkedProcess) for process in processes)
    reports = script.reports()
    for report, code in zip(sorted(reports, key=lambda r: r["arguments"]), "03", strict=True):
        assert report["arguments"] == [str(fds[0]), code]
        assert (report["colour"], report["has_module"]) == ("red", True)
        assert report["inherited"] == str(tmp_path / "inherited")
    assert reports[0]["random"] != reports[1]["random"]


def test_the_users_program_may_wait_for_a_process_or_ignore_its_end(tmp_path, server):
    process = Script(tmp_path, "raise SystemExit(3)").start()
    os.waitpid(process.pid, 0)  # A handler of SIGCHLD may do so.
    assert process.poll() == 0
    script = Script(tmp_path, WAIT)
    code = f"""
import signal
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
def test_it_is_a_child_in_its_own_session(number, tmp_path, server):
    process = Script(tmp_path, WAIT).start()
    assert psutil.Process(process.pid).ppid() == os.getpid()
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait() == process.poll() == -number
    # This does nothing: another process may have that number by now.
    process.send_signal(signal.SIGKILL)


def test_a_request_that_is_too_large_starts_a_process_the_ordinary_way(tmp_path, server):
    script = Script(tmp_path, TELL)
    large = {str(i): "x" * 100_000 for i in range(10)}  # Less than the system's limit.
    process = script.start("0", "4", env=large)
    assert not isinstance(process, ForkedProcess)
    assert process.wait() == 4
    assert isinstance(script.start("0", "4"), ForkedProcess)


@pytest.mark.parametrize(
    ("module", "end"),
    [
        ("json", "-9 (without a message)"),
        ("no_such_module", "1 (ModuleNotFoundError: No module named 'no_such_module')"),
    ],
)
def test_without_its_server_a_process_is_started_the_ordinary_way(module, end, tmp_path, caplog):
    server = open_server(("xmlrpc.client", module))
    if module == "json":
        os.kill(server.pid, signal.SIGKILL)
    script = Script(tmp_path, TELL)
    processes = [script.start("0", "4") for _ in range(2)]
    assert not any(isinstance(process, ForkedProcess) for process in processes)
    assert [process.wait() for process in processes] == [4, 4]
    for report in script.reports():
        assert (report["colour"], report["has_module"]) == ("red", False)
    assert not has_server()
    (warning,) = caplog.messages  # One for all.
    assert f"exit code {end}. " in warning


@contextlib.contextmanager
def no_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def no_adoption():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apex_agents.nodes.fork_server.prctl", lambda *args: False)
        yield


@pytest.mark.parametrize("refusing", [no_descriptors, no_adoption])
def test_where_no_server_can_be_made_a_process_is_started_the_ordinary_way(refusing, tmp_path):
    with refusing():
        assert open_server() is None
    assert not has_server()
    script = Script(tmp_path, TELL)
    process = script.start("0", "4")
    assert not isinstance(process, ForkedProcess)
    assert process.wait() == 4


@pytest.mark.parametrize("has_forks", [True, False])
def test_modules_of_the_folder_take_the_place_of_no_library(has_forks, tmp_path, monkeypatch):
    folder, names = tmp_path / "users", ("random", "tree", "json")
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text("raise ImportError('the one of the user')")
    monkeypatch.chdir(folder)
    imports = "".join(f"import {name}; print({name}.__file__)\n" for name in names)
    script = Script(folder, f"{imports}import os; print(os.getcwd())")
    if has_forks:
        open_server(("apex_agents.config",))
    try:
        assert script.start().wait() == 0, script.log.read_text()
        assert has_server() == has_forks
    finally:
        close_server()
    *modules, folder_of_process = script.log.read_text().splitlines()
    assert len(modules) == 3
    assert not any(module.startswith(str(folder)) for module in modules)
    assert folder_of_process == str(folder)


def test_the_server_ends_with_its_starter():
    code = (
        "import os; from apex_agents.nodes.fork_server import open_server;"
        "print(open_server().pid, flush=True); os._exit(0)"
    )
    with os.popen(f"{sys.executable} -c '{code}'") as output:
        pid = int(output.read())
    wait_for(lambda: not is_alive(pid))
