"""Runs on three hosts: replay, learner and evaluator on A, an actor on each of the others.

The hosts are namespaces of this machine, which share its files; what breaks them is real.
"""

from __future__ import annotations

import shutil
import signal
import time

import numpy as np
import psutil
import pytest
from cluster_hosts import PRIVATE, ROOT, Hosts
from cluster_runs import (
    add_host,
    driver,
    left_behind,
    on_cluster,
    wait_until_healthy,
    where,
)
from whole_runs import MANY_RESTARTS, Command, seconds_since

HOSTS = {name: ("--include-dashboard=false",) if name == "A" else () for name in "ABC"}
SMALL = tuple(
    f"--config.run.cluster.{group}.num_cpus=0.25"
    for group in ("replay", "learner", "evaluator", "actor")
)
OWN_TORSO = """
import sonnet

def make_torso(spec, config):
    return sonnet.nets.MLP([16], activate_final=True)
"""
ACTORS_ANYWHERE = "--config.run.cluster.actor.custom="


@pytest.fixture(scope="module")
def runs() -> list[Command]:
    return []


@pytest.fixture
def run(hosts, start, runs) -> Command:
    """A run in which all nodes work; tests share one for as long as it lives."""
    if not runs or not runs[-1].is_running():
        add_lost_hosts(hosts)
        runs.append(start(*on_cluster(hosts, *MANY_RESTARTS)))
    wait_until_healthy(runs[-1])
    return runs[-1]


@pytest.fixture
def idle(hosts, runs) -> Hosts:
    """Three hosts without a run."""
    if runs and runs[-1].is_running():
        driver(runs[-1], hosts).send_signal(signal.SIGINT)
        runs[-1].finish()
    add_lost_hosts(hosts)
    return hosts


def stop(run: Command, hosts: Hosts) -> None:
    """Presses Ctrl-C, after which nothing is left behind."""
    driver(run, hosts).send_signal(signal.SIGINT)
    assert run.finish().exit_code == 130, run.output()
    assert "Traceback" not in run.output()
    assert left_behind(hosts) == []


def add_lost_hosts(hosts: Hosts) -> None:
    while len(hosts.by_name) < len(HOSTS):
        add_host(hosts, hosts.free_name())


def wait_for_restart(run: Command, node: str, before: dict[str, int]) -> None:
    """Waits until the supervisor has seen that a node died."""
    run.wait_for(lambda: run.num_restarts().get(node, 0) > before.get(node, 0))


def wait_for_transitions(run: Command, actor: str, num_rows: int) -> None:
    """Waits until an actor has written a row with transitions after its first ones."""
    run.wait_for(lambda: any(float(r["transitions"]) > 0 for r in run.rows(actor)[num_rows:]))


def steps_per_second(run: Command, actor: str, num_rows: int) -> float:
    """Measures the speed of an actor over its next rows; the first one is left out."""
    known = len(run.rows(actor))
    run.wait_for(lambda: len(run.rows(actor)) > known + num_rows)
    first, last = run.rows(actor)[known], run.rows(actor)[-1]
    steps, seconds = (
        float(last[column]) - float(first[column])
        for column in ("transitions", "wall_time_seconds")
    )
    return steps / seconds


@pytest.mark.parametrize("agent", ["apex_dqn", "r2d2"])
def test_cartpole_is_solved(agent, idle, start):
    flags = ("--config.run.num_actors=2", "--config.run.num_envs_per_actor=4")
    config = f"--config=configs/{agent}_cartpole.py"
    command = on_cluster(idle, *flags, config=config, agent=agent)
    run = start(*command).finish(timeout=1200)
    assert run.exit_code == 0, run.output()
    assert run.summary()["finished"]
    # The evaluator may finish one more evaluation before it is stopped.
    assert max(float(row["mean_return"]) for row in run.rows("evaluator")) >= 475
    assert left_behind(idle) == []


def test_two_runs_do_not_meet(idle, start):
    flags = (ACTORS_ANYWHERE, "--config.run.num_actors=1", "--config.run.max_actor_steps=5000")
    runs = [start(*on_cluster(idle, *flags, *SMALL)) for _ in range(2)]
    for run in runs:
        run.finish()
        assert run.exit_code == 0, run.output()
        assert run.exit_codes()["actor_0"] == 0
        # All that the replay counted came from the run's own actor.
        assert 5000 <= run.actor_steps() <= float(run.rows("actor_0")[-1]["transitions"])
    assert left_behind(idle) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (
            ("--config.run.cluster.learner.num_gpus=1", "--config.run.cluster.wait_seconds=3"),
            "1 GPU",
        ),
        (("--ray_address=10.77.0.99:6379",), "--ray_address=10.77.0.99:6379"),
    ],
)
def test_mistakes_are_named_without_a_traceback(idle, start, flags, named):
    run = start(*on_cluster(idle, *flags)).finish()
    assert run.exit_code not in (0, None)
    assert named in run.output()
    assert "Traceback" not in run.output()


def test_other_code_on_a_host_is_refused(idle, start):
    path = ROOT / "apex_agents" / "validation.py"
    other = list(idle.by_name.values())[-1]
    there_only = f"--config.run.cluster.actor.custom={other.name.lower()}=0.1"
    with other.changed_file(path, path.read_text() + "# Changed.\n"):
        run = start(*on_cluster(idle, there_only)).finish()
    assert run.exit_code == 1
    assert f"{other.ip} has apex_agents code " in run.output()
    assert left_behind(idle) == []


def test_code_of_the_user_reaches_hosts_that_lack_its_folder(idle, start):
    """All hosts but A have a folder of their own at this path, which is empty."""
    shutil.copy(ROOT / "examples" / "own_environment.py", PRIVATE)
    (PRIVATE / "my_nets.py").write_text(OWN_TORSO)
    flags = ("--config.agent.torso=my_nets:make_torso", "--config.run.max_actor_steps=2000")
    learner_abroad = "--config.run.cluster.learner.custom=abroad=1"
    config = f"--config={PRIVATE}/own_environment.py"
    run = start(*on_cluster(idle, *flags, learner_abroad, config=config)).finish()
    assert run.exit_code == 0, run.output()
    assert run.summary()["finished"]
    assert "A" not in {run.states()[name]["host"] for name in ("learner", "actor_0")}
    with np.load(run.workdir / "checkpoints" / "last.npz") as arrays:
        assert "torso/mlp/linear_0/w" in arrays
    assert left_behind(idle) == []


def test_nodes_are_where_their_resources_are(hosts, run):
    places = where(run)
    assert {places[name] for name in ("replay", "learner", "evaluator")} == {"A"}
    assert places["actor_0"] != places["actor_1"]
    assert "A" not in (places["actor_0"], places["actor_1"])


@pytest.mark.fault(
    breaks="`kill -9` of an actor on another host of a cluster",
    holds="a new one adds transitions, on the same host",
)
def test_actor_killed_on_its_host(hosts, run, record_property):
    host, rows, before = where(run)["actor_0"], len(run.rows("actor_0")), run.num_restarts()
    killed_at = time.monotonic()
    hosts.by_name[host].node("actor_0").kill()
    wait_for_restart(run, "actor_0", before)
    wait_for_transitions(run, "actor_0", rows)
    record_property("seen", f"back at work after {seconds_since(killed_at)}")
    assert where(run)["actor_0"] == host


@pytest.mark.fault(
    breaks="`kill -9` of an actor's host agent, a worker of Ray",
    holds="the actor exits, and a new one adds transitions",
)
def test_host_agent_killed(hosts, run, record_property):
    host, rows, before = where(run)["actor_0"], len(run.rows("actor_0")), run.num_restarts()
    actor = hosts.by_name[host].node("actor_0")
    killed_at = time.monotonic()
    actor.parent().kill()
    wait_for_restart(run, "actor_0", before)
    wait_for_transitions(run, "actor_0", rows)
    record_property("seen", f"back at work after {seconds_since(killed_at)}")
    assert not actor.is_running() or actor.status() == psutil.STATUS_ZOMBIE


@pytest.mark.fault(
    breaks="`kill -9` of the learner on a cluster",
    holds="a new one continues from the newest checkpoint",
)
def test_learner_killed_on_its_host(hosts, run, record_property):
    run.wait_for(run.checkpoints)
    before = run.num_restarts()
    killed_at = time.monotonic()
    hosts.by_name["A"].node("learner").kill()
    wait_for_restart(run, "learner", before)
    rows, checkpoint = len(run.rows("learner")), run.newest_checkpoint()
    run.wait_for(lambda: len(run.rows("learner")) > rows)
    record_property("seen", f"back at work after {seconds_since(killed_at)}")
    assert float(run.rows("learner")[rows]["learner_steps"]) > checkpoint


@pytest.mark.fault(
    breaks="a network with 50 ms of delay each way and 1 % of loss between an actor and the rest",
    holds="the actor continues, and no node dies",
)
def test_bad_network(hosts, run, record_property):
    deaths = run.num_restarts()
    before = steps_per_second(run, "actor_0", num_rows=2)
    link = hosts.by_name[where(run)["actor_0"]].link
    link.degrade(0.05, 0.01)
    during = steps_per_second(run, "actor_0", num_rows=4)
    link.degrade(0.0, 0.0)
    record_property("seen", f"{before:.0f} actor steps/s before, {during:.0f} meanwhile")
    assert during > 0
    assert run.num_restarts() == deaths


@pytest.mark.fault(
    breaks="a host with an actor that loses its power",
    holds="the others continue meanwhile; the actor moves to a host that has room",
)
def test_lost_host(hosts, run, record_property):
    spare = add_host(hosts, hosts.free_name())
    rows, steps, before = len(run.rows("actor_0")), run.actor_steps(), run.num_restarts()
    killed_at = time.monotonic()
    hosts.lose(where(run)["actor_0"])
    wait_for_restart(run, "actor_0", before)
    noticed = seconds_since(killed_at)
    assert run.actor_steps() > steps
    run.wait_for(lambda: where(run).get("actor_0") == spare.name)
    wait_for_transitions(run, "actor_0", rows)
    record_property("seen", f"noticed after {noticed}, at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the command on a cluster",
    holds="all nodes exit, the learner with a checkpoint; the same command resumes the run",
)
def test_command_killed(hosts, start, run, record_property):
    killed_at = time.monotonic()
    driver(run, hosts).kill()
    run.finish()
    assert left_behind(hosts) == []
    record_property("seen", f"all gone after {seconds_since(killed_at)}")
    rows, checkpoint = len(run.rows("learner")), run.newest_checkpoint()
    again = start(*on_cluster(hosts, *MANY_RESTARTS), folder=run.workdir.parent)
    again.wait_for(lambda: len(again.rows("learner")) > rows)
    assert float(again.rows("learner")[rows]["learner_steps"]) > checkpoint
    stop(again, hosts)


@pytest.mark.fault(
    breaks="the host of the learner loses its power, and hosts share no folder",
    holds="the learner moves and continues from the last checkpoint that had come to the command's "
    "folder; all its logs are there",
)
def test_lost_learner_without_a_shared_folder(idle, start, record_property):
    """All hosts but A have a folder of their own at this path."""
    folder = PRIVATE / "runs"
    folder.mkdir()
    places = ("--config.run.cluster.learner.custom=abroad=1", ACTORS_ANYWHERE)
    run = start(*on_cluster(idle, *places, *MANY_RESTARTS), folder=folder)
    wait_until_healthy(run)
    run.wait_for(run.checkpoints)
    lost, steps = where(run)["learner"], run.learner_steps()
    killed_at = time.monotonic()
    idle.lose(lost)
    run.wait_for(lambda: where(run).get("learner", lost) != lost)
    rows, checkpoint = len(run.rows("learner")), run.newest_checkpoint()
    run.wait_for(lambda: run.learner_steps() > steps)
    record_property("seen", f"at work on another host after {seconds_since(killed_at)}")
    assert float(run.rows("learner")[rows]["learner_steps"]) > checkpoint
    wait_until_healthy(run)
    stop(run, idle)
    # The learner's last files are here, and no more checkpoints than it keeps itself.
    assert run.summary()["finished"] is False
    assert run.ended_with_a_checkpoint()
    assert len(run.checkpoints()) <= 3
    assert (run.workdir / "checkpoints" / "last.npz").exists()


@pytest.mark.fault(
    breaks="the host of the only replay loses its power",
    holds="the replay moves to a host that has room and begins empty; the learner continues "
    "without a restart, actors and evaluator are restarted, actor steps are counted on",
)
def test_lost_replay(idle, start, record_property):
    places = ("--config.run.cluster.replay.custom=abroad=1", ACTORS_ANYWHERE)
    run = start(*on_cluster(idle, *places, *MANY_RESTARTS))
    wait_until_healthy(run)
    lost, learned, acted = where(run)["replay"], run.learner_steps(), run.actor_steps()
    killed_at = time.monotonic()
    idle.lose(lost)
    run.wait_for(lambda: where(run).get("replay", lost) != lost)
    moved = seconds_since(killed_at)
    wait_until_healthy(run)
    run.wait_for(lambda: run.learner_steps() > learned + 100)
    record_property("seen", f"moved after {moved}, learns after {seconds_since(killed_at)}")
    assert run.num_restarts().get("learner", 0) == 0
    assert run.actor_steps() > acted
    run.wait_for_rows("evaluator")
    stop(run, idle)


@pytest.mark.fault(
    breaks="the host of one of two replays loses its power",
    holds="the learner continues with the other one; the replay moves as soon as a host has room",
)
def test_lost_replay_of_two(idle, start, record_property):
    two = ("--config.run.num_replays=2", "--config.run.cluster.replay.custom=abroad=1")
    run = start(*on_cluster(idle, *two, ACTORS_ANYWHERE, *MANY_RESTARTS))
    run.wait_for(lambda: len(where(run)) == 6 and len(run.rows("learner")) > 2)
    # One replay for each actor: one of them goes on as if nothing had happened.
    rows, lost = len(run.rows("learner")), where(run)["replay_1"]
    killed_at = time.monotonic()
    idle.lose(lost)
    run.wait_for(lambda: len(run.rows("learner")) > rows + 1)
    learns = seconds_since(killed_at)
    run.wait_for(lambda: "waits for a host with room" in run.output())
    add_host(idle, idle.free_name())
    run.wait_for(lambda: where(run).get("replay_1", lost) != lost)
    moved = seconds_since(killed_at)
    run.wait_for(lambda: len(where(run)) == 6)
    steps, learned = run.actor_steps(1), run.learner_steps()
    run.wait_for(lambda: run.actor_steps(1) > steps and run.learner_steps() > learned)
    record_property("seen", f"a row of the learner after {learns}, moved after {moved}")
    assert run.num_restarts().get("learner", 0) == 0
    stop(run, idle)


@pytest.mark.fault(
    breaks="the host of one of two learners loses its power",
    holds="the other one goes on with the parameter server; the learner moves as soon as a host "
    "has room",
)
def test_lost_learner_of_two(idle, start, record_property):
    two = (
        "--config.run.num_learners=2",
        "--config.run.cluster.learner.custom=abroad=1",
        "--config.run.cluster.parameter_server.custom=a=0.1",
        "--config.run.learners.max_wait_seconds=2",
    )
    run = start(*on_cluster(idle, *two, ACTORS_ANYWHERE, *MANY_RESTARTS))
    run.wait_for(lambda: len(where(run)) == 7 and len(run.rows("learner_1")) > 2)
    assert where(run)["parameter_server"] == "A" and where(run)["learner_0"] != "A"
    rows, lost, learned = len(run.rows("learner_0")), where(run)["learner_1"], run.learner_steps()
    of_lost = len(run.rows("learner_1"))
    killed_at = time.monotonic()
    idle.lose(lost)
    run.wait_for(lambda: len(run.rows("learner_0")) > rows + 2)
    run.wait_for(lambda: run.learner_steps() > learned + 100)
    learns = seconds_since(killed_at)
    run.wait_for(lambda: "waits for a host with room" in run.output())
    add_host(idle, idle.free_name())
    run.wait_for(lambda: where(run).get("learner_1", lost) != lost)
    run.wait_for(lambda: len(run.rows("learner_1")) > of_lost + 2)
    run.wait_for(lambda: float(run.rows("learner")[-1]["gradients_per_step"]) > 1.5)
    record_property("seen", f"learns after {learns}, with both after {seconds_since(killed_at)}")
    assert run.num_restarts().get("parameter_server", 0) == 0
    stop(run, idle)
