"""Runs on a cluster, and the hosts of their nodes."""

from __future__ import annotations

import json

import psutil
from cluster_hosts import HEAD_PORT, Host, Hosts
from whole_runs import LEAVE_WITHIN_SECONDS, Command, poll_until

CATCH = "--config=tests/faults/catch.py"
# Resources that the hosts of `add_host` have.
ON_A = tuple(f"--config.run.cluster.{node}.custom=a=0.1" for node in ("replay", "evaluator"))
LEARNER_ON_A = "--config.run.cluster.learner.custom=a=0.1"
ACTORS_ABROAD = "--config.run.cluster.actor.custom=abroad=1"


def add_host(hosts: Hosts, name: str, *options: str) -> Host:
    """Starts a host with Ray; it has 4 cores, a resource of its name and, but for A, one abroad."""
    host = hosts.add(name)
    resources = {name.lower(): 1} | ({"abroad": 1} if host is not hosts.head else {})
    host.start_ray(hosts.head, "--num-cpus=4", f"--resources={json.dumps(resources)}", *options)
    return host


def on_cluster(
    hosts: Hosts, *flags: str, config: str = CATCH, agent: str = "apex_dqn"
) -> tuple[str, ...]:
    """Returns the command of a run; unless flags say otherwise, all but its actors are on A."""
    return (
        f"launch/{agent}.py",
        "--lp_launch_type=ray",
        f"--ray_address={hosts.head.ip}:{HEAD_PORT}",
        "--workdir={workdir}",
        config,
        *ON_A,
        LEARNER_ON_A,
        ACTORS_ABROAD,
        *flags,
    )


def where(run: Command) -> dict[str, str]:
    """Returns the hosts of the living nodes, by the names of the nodes."""
    return {name: state["host"] for name, state in run.states().items() if state["is_alive"]}


def wait_until_healthy(run: Command) -> None:
    """Waits until all five nodes are seen at work."""
    rows, steps = len(run.rows("learner")), run.actor_steps()
    run.wait_for(lambda: len(run.rows("learner")) > rows and run.actor_steps() > steps)
    run.wait_for(lambda: len(where(run)) == 5)


def left_behind(hosts: Hosts) -> list[str]:
    """Names what does not end after all runs, on all hosts."""
    poll_until(lambda: not _nodes(hosts), LEAVE_WITHIN_SECONDS)
    return _nodes(hosts)


def driver(run: Command, hosts: Hosts) -> psutil.Process:
    """Finds the process of the command on its host."""
    (process,) = (
        process
        for process in run.processes()
        if process in hosts.head.processes() and "launch/apex_dqn.py" in process.cmdline()
    )
    return process


def _nodes(hosts: Hosts) -> list[str]:
    names = ("replay", "learner", "parameter_", "evaluator", "actor_", "ray::HostAgent")
    return [
        f"{process.name()} on {host.name}"
        for host in hosts.by_name.values()
        for process in host.processes()
        if process.name().startswith(names)
    ]
