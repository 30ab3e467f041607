"""Runs on three hosts: replay, learner and evaluator on A, an actor each on B and C.

The hosts are namespaces of this machine, which share its files; what breaks them is real.
"""

from __future__ import annotations

import signal
import time

import psutil
import pytest
from cluster_hosts import PRIVATE, ROOT
from cluster_runs import (
    add_host,
    driver,
    left_behind,
    on_cluster,
    wait_until_well,
    where,
)
from whole_runs import Command

HOSTS = {name: ("--include-dashboard=false",) if name == "A" else () for name in "ABC"}
SMALL = tuple(
    f"--config.run.cluster.{group}.num_cpus=0.25"
    for group in ("replay", "learner", "evaluator", "actor")
)
MANY_RESTARTS = ("--config.run.max_restarts=100", "--config.run.restart_window_seconds=20")


@pytest.fixture(scope="module")
def run(hosts, start) -> Command:
    """A run that goes on, which the tests break one after the other."""
    return start(*on_cluster(hosts, *MANY_RESTARTS))


@pytest.fixture
def well(run) -> Command:
    """That run, with everybody at work."""
    wait_until_well(run)
    return run


def seconds_since(started: float) -> str:
    return f"{time.monotonic() - started:.0f} s"


def steps_per_second(run: Command, actor: str, seconds: float) -> float:
    """Measures how fast an actor is from now on."""
    known = len(run.rows(actor))
    time.sleep(seconds)
    run.wait_for(lambda: len(run.rows(actor)) > known + 1)
    first, last = run.rows(actor)[known], run.rows(actor)[-1]
    steps, seconds = (
        float(last[column]) - float(first[column])
        for column in ("transitions", "wall_time_seconds")
    )
    return steps / seconds


def test_cartpole_is_solved(hosts, start):
    flags = ("--config.run.num_actors=2", "--config.run.num_envs_per_actor=4")
    run = start(*on_cluster(hosts, *flags, config="--config=configs/apex_dqn_cartpole.py")).finish(
        600
    )
    assert run.exit_code == 0, run.output()
    assert run.summary()["reason"] == "target return 475 reached"
    assert left_behind(hosts) == []


def test_two_runs_do_not_meet(hosts, start):
    anywhere = ("--config.run.cluster.actor.custom=", "--config.run.num_actors=1")
    limit = "--config.run.max_actor_steps=5000"
    runs = [start(*on_cluster(hosts, *anywhere, *SMALL, limit)) for _ in range(2)]
    for run in runs:
        run.finish()
        assert run.exit_code == 0, run.output()
        assert 5000 <= run.actor_steps() < 10_000
    assert left_behind(hosts) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--config.run.cluster.learner.num_gpus=1", "--config.run.cluster.wait_seconds=3"),
            "No room for the run after 3 s: the nodes want ",
        ),
        (("--ray_address=10.77.0.99:6379",), "--ray_address=10.77.0.99:6379 cannot be reached: "),
    ],
)
def test_mistakes_are_told_in_one_line(hosts, start, flags, message):
    run = start(*on_cluster(hosts, *flags)).finish()
    assert run.exit_code not in (0, None)
    assert message in run.output()
    assert "Traceback" not in run.output()


def test_other_code_on_a_host_is_told(hosts, start):
    path = ROOT / "apex_agents" / "validation.py"
    b_only = "--config.run.cluster.actor.custom=b=0.1"
    with hosts.by_name["B"].changed_file(path, path.read_text() + "# Changed.\n"):
        run = start(*on_cluster(hosts, b_only)).finish()
    assert run.exit_code == 1
    assert f"The host {hosts.by_name['B'].ip} has apex_agents code " in run.output()
    assert left_behind(hosts) == []


def test_nodes_are_where_their_resources_are(well):
    hosts = where(well)
    assert {hosts[name] for name in ("replay", "learner", "evaluator")} == {"A"}
    assert {hosts["actor_0"], hosts["actor_1"]} == {"B", "C"}


@pytest.mark.fault(
    breaks="`kill -9` of an actor on another host of a cluster",
    holds="a new one adds transitions, on the same host",
)
def test_actor_killed_on_its_host(hosts, well, record_property):
    host, rows = where(well)["actor_0"], len(well.rows("actor_0"))
    killed_at = time.monotonic()
    hosts.by_name[host].node("actor_0").kill()
    well.wait_for(lambda: "Node actor_0 was killed (SIGKILL" in well.stdout())
    well.wait_for(lambda: any(float(r["transitions"]) > 0 for r in well.rows("actor_0")[rows:]))
    record_property("seen", f"back at work after {seconds_since(killed_at)}")
    assert where(well)["actor_0"] == host


@pytest.mark.fault(
    breaks="`kill -9` of the worker of Ray that looks after an actor",
    holds="the actor leaves, and a new one adds transitions",
)
def test_guard_killed(hosts, well, record_property):
    host, rows = where(well)["actor_0"], len(well.rows("actor_0"))
    actor = hosts.by_name[host].node("actor_0")
    killed_at = time.monotonic()
    actor.parent().kill()
    well.wait_for(lambda: f"Node actor_0 was lost with a worker of Ray on {host}" in well.stdout())
    well.wait_for(lambda: any(float(r["transitions"]) > 0 for r in well.rows("actor_0")[rows:]))
    record_property("seen", f"back at work after {seconds_since(killed_at)}")
    assert not actor.is_running() or actor.status() == psutil.STATUS_ZOMBIE


@pytest.mark.fault(
    breaks="`kill -9` of the learner on a cluster",
    holds="a new one goes on from the newest checkpoint",
)
def test_learner_killed_on_its_host(hosts, well, record_property):
    well.wait_for(well.checkpoints)
    steps = well.learner_steps()
    killed_at = time.monotonic()
    hosts.by_name["A"].node("learner").kill()
    well.wait_for(lambda: "Node learner was killed (SIGKILL" in well.stdout())
    well.wait_for(lambda: well.learner_steps() > steps)
    record_property("seen", f"back at work after {seconds_since(killed_at)}")
    assert "Resuming from learner-" in well.log("learner").read_text()


@pytest.mark.fault(
    breaks="a network with 50 ms of delay each way and 1 % of loss between an actor and the rest",
    holds="the actor goes on, and nobody dies",
)
def test_bad_network(hosts, well, record_property):
    deaths = well.stdout().count("it starts again")
    before = steps_per_second(well, "actor_0", 10.0)
    link = hosts.by_name[where(well)["actor_0"]].link
    link.degrade(0.05, 0.01)
    time.sleep(5.0)
    during = steps_per_second(well, "actor_0", 20.0)
    link.degrade(0.0, 0.0)
    record_property("seen", f"{before:.0f} actor steps/s before, {during:.0f} meanwhile")
    assert 0 < during < before
    assert well.stdout().count("it starts again") == deaths
    wait_until_well(well)


@pytest.mark.fault(
    breaks="a host with an actor that loses its power",
    holds="the others go on meanwhile; the actor moves to a host that has room",
)
def test_lost_host(hosts, well, record_property):
    add_host(hosts, "D")
    (actor,) = (name for name, host in where(well).items() if host == "C")
    rows, steps = len(well.rows(actor)), well.actor_steps()
    killed_at = time.monotonic()
    hosts.lose("C")
    well.wait_for(lambda: f"Node {actor} was lost with its host C" in well.stdout())
    noticed = seconds_since(killed_at)
    assert well.actor_steps() > steps
    well.wait_for(lambda: where(well).get(actor) == "D")
    well.wait_for(lambda: any(float(r["transitions"]) > 0 for r in well.rows(actor)[rows:]))
    record_property("seen", f"noticed after {noticed}, at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the command on a cluster",
    holds="all nodes leave, the learner with a checkpoint; the same command goes on",
)
def test_command_killed(hosts, start, well, record_property):
    steps = well.learner_steps()
    killed_at = time.monotonic()
    driver(well, hosts).kill()
    assert left_behind(hosts) == []
    record_property("seen", f"all gone after {seconds_since(killed_at)}")
    again = start(*on_cluster(hosts, *MANY_RESTARTS), folder=well.workdir.parent)
    again.wait_for(lambda: "Going on from learner step" in again.stdout())
    again.wait_for(lambda: again.learner_steps() > steps)
    driver(again, hosts).send_signal(signal.SIGINT)
    assert again.finish().exit_code == 130
    assert left_behind(hosts) == []


@pytest.mark.fault(
    breaks="the host of the learner loses its power, and hosts share no folder",
    holds="the learner moves and goes on from the last checkpoint that had come to the command's "
    "folder; so do all its logs",
)
def test_lost_learner_without_a_shared_folder(hosts, start, record_property):
    """B and D, which are left of the hosts, have a folder of their own at this path."""
    folder = PRIVATE / "runs"
    folder.mkdir()
    places = ("--config.run.cluster.learner.custom=abroad=1", "--config.run.cluster.actor.custom=")
    run = start(*on_cluster(hosts, *places, *MANY_RESTARTS), folder=folder)
    wait_until_well(run)
    run.wait_for(run.checkpoints)
    lost, steps = where(run)["learner"], run.learner_steps()
    other = "D" if lost == "B" else "B"
    killed_at = time.monotonic()
    hosts.lose(lost)
    run.wait_for(lambda: where(run).get("learner") == other)
    run.wait_for(lambda: run.learner_steps() > steps)
    record_property("seen", f"at work on another host after {seconds_since(killed_at)}")
    assert "Resuming from learner-" in run.log("learner").read_text()
    wait_until_well(run)
    driver(run, hosts).send_signal(signal.SIGINT)
    assert run.finish().exit_code == 130, run.output()
    # The learner's last words are here, and no more checkpoints than it keeps itself.
    assert run.summary()["reason"] == "stopped from outside"
    assert run.checkpoints()[-1] == f"learner-{run.summary()['learner_steps']:012d}"
    assert len(run.checkpoints()) <= 3
    assert (run.workdir / "checkpoints" / "last.npz").exists()
    assert left_behind(hosts) == []


@pytest.mark.fault(
    breaks="the host of the replay loses its power",
    holds="the run ends with exit code 1 and says so; the same command goes on from the learner's "
    "checkpoint, with a replay on another host",
)
def test_lost_replay(hosts, start, record_property):
    places = ("--config.run.cluster.replay.custom=abroad=1", "--config.run.cluster.actor.custom=")
    run = start(*on_cluster(hosts, *places))
    wait_until_well(run)
    run.wait_for(run.checkpoints)
    steps = run.learner_steps()
    killed_at = time.monotonic()
    hosts.lose(where(run)["replay"])
    run.finish()
    record_property("seen", f"ended after {seconds_since(killed_at)}")
    assert run.exit_code == 1
    assert "Node replay was lost with its host " in run.stdout()
    assert "the same command goes on from the learner's last checkpoint" in run.stdout()
    assert "Traceback" not in run.output()
    assert left_behind(hosts) == []
    here = ("--config.run.cluster.replay.custom=", "--config.run.cluster.actor.custom=")
    again = start(*on_cluster(hosts, *here, *SMALL), folder=run.workdir.parent)
    again.wait_for(lambda: again.learner_steps() > steps)
    assert "Going on from learner step" in again.stdout()
