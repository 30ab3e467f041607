"""A process in a network namespace of its own, and the ways of not getting one."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

# Reports what it finds inside; the arguments show that they came along.
REPORT = """
import json, os, pathlib, socket, sys
from apex_agents.nodes.isolation import isolate
isolate()
report = {"arguments": sys.argv[1:], "folder": os.getcwd(), "pid": os.getpid()}
report["marked"] = [name for name in os.environ if name.startswith("APEX_AGENTS")]
report["connected"] = []
for host in ("127.0.0.1", "localhost"):
    with socket.create_server((host, 0)) as server:
        with socket.create_connection((host, server.getsockname()[1]), timeout=5):
            report["connected"].append(host)
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        outward.connect(("192.0.2.1", 9))  # An address for documentation: sends nothing.
    report["way_out"] = "found"
except OSError as error:
    report["way_out"] = error.strerror
pathlib.Path("made_inside").write_text("")
print(json.dumps(report), flush=True)
sys.exit(7)
"""
STARTS_NOTHING = """
import sys
from apex_agents.nodes.isolation import isolate
try:
    isolate()
except ValueError as error:
    sys.exit(f"refused: {error}")
print("went on")
"""
# Where the tests run in the background of a shell, it ignores SIGINT.
WAITS = """
import signal
import time
from apex_agents.nodes.isolation import isolate
signal.signal(signal.SIGINT, signal.default_int_handler)
isolate()
print("inside", flush=True)
time.sleep(60)
"""

# Each an `unshare` that the first place of the PATH holds, and what the refusal has to say.
BAD_UNSHARES = {
    "kernel_refuses": (
        "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1",
        "no network namespace (unshare: unshare failed: Operation not permitted)",
    ),
    "says_nothing": ("exit 3", "(unshare: exit code 3)"),
    "isolates_nothing": (
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
        "(unshare made no network namespace)",
    ),
    # AppArmor lets namespaces be made in which one may do nothing on some systems. Here the user is
    # left unmapped, so that it is not root inside.
    "without_rights": (
        f'while [ "$1" != -- ]; do shift; done; exec {shutil.which("unshare")} --user --net "$@"',
        "(loopback cannot be brought up: Operation not permitted)",
    ),
    "is_missing": (None, "there is no command unshare on the PATH"),
}


def start(script: str, folder: pathlib.Path, *arguments: str, path: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_inside_loopback_works_and_nothing_else(network_namespaces, tmp_path):
    process = start(REPORT, tmp_path, "--flag=a b", "", path=os.environ["PATH"])
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 7, stderr
    report = json.loads(stdout)
    assert report["connected"] == ["127.0.0.1", "localhost"]
    assert report["way_out"] == "Network is unreachable"
    assert report["arguments"] == ["--flag=a b", ""]
    # The process, to which signals are sent, stays the one that was started.
    assert (report["folder"], report["pid"]) == (str(tmp_path), process.pid)
    assert report["marked"] == []
    made = (tmp_path / "made_inside").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())


def test_a_signal_reaches_the_process_inside(network_namespaces, tmp_path):
    process = start(WAITS, tmp_path, path=os.environ["PATH"])
    try:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert stderr.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize("name", BAD_UNSHARES)
def test_what_does_not_isolate_is_refused(network_namespaces, tmp_path, name):
    script, reason = BAD_UNSHARES[name]
    path = str(tmp_path)
    if script is not None:
        program = tmp_path / "unshare"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        path += os.pathsep + os.environ["PATH"]
    process = start(STARTS_NOTHING, tmp_path, path=path)
    stdout, stderr = process.communicate(timeout=600)
    assert (process.returncode, stdout) == (1, "")
    text = "" if script is None else "this system gives you no network"
    assert stderr.startswith(f"refused: --isolate: {text}")
    assert reason in stderr
    assert stderr.count("\n") == 1
