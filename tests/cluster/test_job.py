"""A command that runs on the cluster, with the code that was sent along."""

from __future__ import annotations

import sys

import pytest
from cluster_hosts import ray
from cluster_runs import left_behind, on_cluster
from whole_runs import Command

HEAD = "10.77.0.1"
HOSTS = {"A": (f"--dashboard-host={HEAD}",)}


@pytest.fixture(scope="module")
def hosts(token, hosts):
    return hosts


def test_without_the_token(hosts, start, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    run = start(*on_cluster(hosts)).finish()
    assert run.exit_code == 2
    assert "Traceback" not in run.output()


def test_submitted_job(hosts, tmp_path):
    anywhere = ("--config.run.cluster.actor.custom=", "--config.run.num_actors=1")
    limit = "--config.run.max_actor_steps=20000"
    command = on_cluster(hosts, *anywhere, limit)
    without_address = [part for part in command if not part.startswith("--ray_address")]
    submit = ["job", "submit", f"--address=http://{HEAD}:8265", "--working-dir=."]
    argv = [*submit, "--", sys.executable, *without_address]
    run = Command(
        tmp_path,
        ray(),
        *[part.replace("{workdir}", str(tmp_path / "run")) for part in argv],
        enter=hosts.head.space.enter(),
    )
    try:
        # Nodes import what was sent, not what is installed.
        assert "/_ray_pkg_" in hosts.head.node("learner").environ()["PYTHONPATH"]
        run.finish()
    finally:
        run.close()
    assert run.exit_code == 0, run.output()
    assert run.summary()["finished"]
    assert run.summary()["actor_steps"] >= 20_000
    assert left_behind(hosts) == []
