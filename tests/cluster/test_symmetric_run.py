"""What `srun` starts on every host of a Slurm job: Ray, and on the first one the command."""

from __future__ import annotations

import os
import pathlib
import sys

from cluster_hosts import HEAD_PORT, Host, ray
from cluster_runs import CATCH, left_behind
from whole_runs import Command

HOSTS: dict[str, tuple[str, ...]] = {}
HEAD = f"10.77.0.1:{HEAD_PORT}"


def test_symmetric_run(token, hosts, tmp_path, monkeypatch):
    # An activated environment: the command calls others of Ray.
    folder = pathlib.Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    run, other = (start(hosts.add(name), tmp_path / name) for name in "AB")
    try:
        run.finish()
        other.finish()
    finally:
        run.close()
        other.close()
    assert run.exit_code == 0, run.output() + other.output()
    assert run.summary()["finished"]
    assert run.summary()["actor_steps"] >= 10_000
    assert left_behind(hosts) == []


def start(host: Host, folder: pathlib.Path) -> Command:
    """Starts the same command on a host, as one task of a job."""
    folder.mkdir()
    wrapper = ["--address", HEAD, "--min-nodes", "2", "--num-cpus=4"]
    command = ["launch/apex_dqn.py", "--lp_launch_type=ray", f"--ray_address={HEAD}"]
    # Hosts have 4 cores each; one would not do.
    limits = ["--config.run.max_actor_steps=10000", "--config.run.cluster.actor.num_cpus=2"]
    workdir = f"--workdir={folder}/run"
    return Command(
        folder,
        ray(),
        *["symmetric-run", *wrapper, "--", sys.executable],
        *[*command, workdir, CATCH, *limits],
        enter=host.space.enter(),
    )
