"""Runs in a network namespace of their own."""

import os
import re
import socket
import subprocess
import sys

import psutil
import pytest
from whole_runs import ENDLESS, LEAVE_WITHIN_SECONDS, apex_dqn


def test_isolated_run_ends_with_success(start, network_namespaces):
    run = start(*apex_dqn("local_mp", "--isolate", "--config.run.max_learner_steps=50")).finish()
    assert run.exit_code == 0, run.output()
    assert run.summary()["learner_steps"] >= 50
    assert run.left_behind() == []


# Prints those of the hosts in the arguments to whose port, the first argument, it can connect.
CONNECT = """
import socket, sys
for host in sys.argv[2:]:
    try:
        socket.create_connection((host, int(sys.argv[1])), timeout=5).close()
        print(host)
    except OSError:
        pass
"""


@pytest.mark.fault(
    breaks="a connection from outside to the replay of a run with `--isolate`",
    holds="it is refused; from inside the run the port is reachable",
)
def test_isolated_replay_is_reached_from_inside_only(start, network_namespaces):
    run = start(*apex_dqn("local_mp", "--isolate", *ENDLESS))
    run.wait_for(run.is_learning)
    port = re.search(r"replay server on port (\d+)", run.log("replay").read_text())[1]
    internet = (socket.AF_INET, socket.AF_INET6)
    addresses = [a for interface in psutil.net_if_addrs().values() for a in interface]
    hosts = sorted({"localhost"} | {a.address for a in addresses if a.family in internet})
    connect = [sys.executable, "-c", CONNECT, port]
    outside = subprocess.run([*connect, *hosts], capture_output=True, text=True, check=True)
    assert outside.stdout == ""
    # From inside the connection succeeds, which shows that the server listens.
    enter = ["nsenter", f"--target={run.pid}", "--user", "--preserve-credentials", "--net"]
    inside = subprocess.run(
        [*enter, *connect, "127.0.0.1"], capture_output=True, text=True, check=True
    )
    assert inside.stdout == "127.0.0.1\n"

    files = [run.workdir, *run.workdir.rglob("*")]
    assert {(file.stat().st_uid, file.stat().st_gid) for file in files} == {
        (os.getuid(), os.getgid())
    }
    run.press_ctrl_c()
    run.finish(LEAVE_WITHIN_SECONDS)
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert run.summary()["finished"] is False
    assert "Traceback" not in run.output()
