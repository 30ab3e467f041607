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
report = {"arguments": sys.argv[1:], "folder": os.getcwd()}
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
WAITS = """
import time
from apex_agents.nodes.isolation import isolate
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
}


def run(script: str, folder: pathlib.Path, *arguments: str, path: str | None = None):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": os.environ["PATH"] if path is None else path},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_inside_loopback_works_and_nothing_else(network_namespaces, tmp_path):
    result = run(REPORT, tmp_path, "--flag=a b", "")
    assert result.returncode == 7, result.stderr
    report = json.loads(result.stdout)
    assert report["connected"] == ["127.0.0.1", "localhost"]
    assert report["way_out"] == "Network is unreachable"
    assert report["arguments"] == ["--flag=a b", ""]
    assert report["folder"] == str(tmp_path)
    assert report["marked"] == []


def test_files_belong_to_the_user(network_namespaces, tmp_path):
    run(REPORT, tmp_path)
    made = (tmp_path / "made_inside").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())


def test_process_stays_the_one_that_was_started(network_namespaces, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "inside\n"
        namespace = os.readlink(f"/proc/{process.pid}/ns/net")
        assert namespace != os.readlink("/proc/self/ns/net")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert stderr.endswith("KeyboardInterrupt\n")


def test_path_without_unshare(tmp_path):
    result = run(STARTS_NOTHING, tmp_path, path=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("refused: --isolate: there is no command unshare on the PATH")


@pytest.mark.parametrize("name", BAD_UNSHARES)
def test_unshare_that_does_not_isolate(tmp_path, name):
    script, reason = BAD_UNSHARES[name]
    result = run(STARTS_NOTHING, tmp_path, path=put_first_on_path(tmp_path, script))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("refused: --isolate: this system gives you no network")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_namespace_without_rights_in_it(network_namespaces, tmp_path):
    # What AppArmor does on some systems: namespaces are made, but one may do nothing in them. Here
    # by leaving the user unmapped, so that it is not root inside.
    unshare = shutil.which("unshare")
    script = f'while [ "$1" != -- ]; do shift; done; exec {unshare} --user --net "$@"'
    result = run(STARTS_NOTHING, tmp_path, path=put_first_on_path(tmp_path, script))
    assert result.returncode == 1
    assert result.stdout == ""
    assert "(loopback cannot be brought up: Operation not permitted)" in result.stderr


def put_first_on_path(folder: pathlib.Path, script: str) -> str:
    program = folder / "unshare"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
