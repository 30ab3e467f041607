"""Replays that no node reaches."""

from __future__ import annotations

import signal

import pytest
from whole_runs import ENDLESS, apex_dqn


@pytest.fixture(scope="module")
def enter(network_namespaces) -> list[str]:
    """Enters a network namespace, whose loopback is down."""
    return ["unshare", "--user", "--map-root-user", "--net"]


@pytest.mark.fault(
    breaks="a loopback interface that is down, so that no node reaches the replay",
    holds="every node says so, with the address and the cause; SIGTERM ends all of them "
    "without a kill",
)
def test_no_node_reaches_the_replay(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    nodes = ("replay", "learner", "evaluator", "actor_0")
    said = [f"Node {node} has waited for 1" for node in nodes]
    run.wait_for(lambda: all(beginning in run.stdout() for beginning in said))
    lines = [line for line in run.stdout().splitlines() if line.startswith("Node ")]
    assert all("localhost:" in line and "`lo` is down" in line for line in lines)
    run.signal(signal.SIGTERM)
    run.finish()
    assert run.exit_code == 143, run.output()
    assert run.left_behind() == []
    assert run.exit_codes() == dict.fromkeys(nodes, 0)
