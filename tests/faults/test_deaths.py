"""Nodes that die in the middle of a run (issue: what a long run meets), with real kill -9.

The tests share one run; each waits until it is well before breaking it anew.
"""

from __future__ import annotations

import signal
import time

import pytest
from whole_runs import LEAVE_WITHIN_SECONDS, Command

CATCH = "--config=tests/faults/catch.py"


@pytest.fixture(scope="module")
def run(start) -> Command:
    return start(
        "launch/apex_dqn.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        CATCH,
        "--config.run.max_restarts=100",
        "--config.run.restart_window_seconds=20",
    )


@pytest.fixture
def well(run) -> Command:
    """A run in which everybody works."""
    counts = {name: len(run.rows(name)) for name in ("learner", "evaluator")}
    steps = run.actor_steps()
    run.wait_for(lambda: all(len(run.rows(name)) > n for name, n in counts.items()))
    run.wait_for(lambda: run.actor_steps() > steps and len(run.nodes()) == 5)
    return run


def kill(run: Command, name: str) -> float:
    """Kill a node and wait until there is a new one; return the time of the kill."""
    process = run.node(name)
    killed_at = time.monotonic()
    process.kill()
    run.wait_for(lambda: run.nodes().get(name, process) != process)
    assert "Node " + name + " was killed (SIGKILL" in run.stdout()
    return killed_at


def seconds_since(killed_at: float) -> str:
    return f"{time.monotonic() - killed_at:.0f} s"


@pytest.mark.fault(
    breaks="`kill -9` of an actor",
    holds="the learner goes on meanwhile; a new one adds transitions",
)
def test_killed_actor(well, record_property):
    rows, learner_steps = len(well.rows("actor_0")), well.learner_steps()
    killed_at = kill(well, "actor_0")
    well.wait_for(lambda: well.learner_steps() > learner_steps)
    well.wait_for(lambda: any(float(r["transitions"]) > 0 for r in well.rows("actor_0")[rows:]))
    record_property("seen", f"back at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the evaluator",
    holds="a new one evaluates; no row of its CSV is lost or doubled",
)
def test_killed_evaluator(well, record_property):
    before = well.rows("evaluator")
    killed_at = kill(well, "evaluator")
    well.wait_for(lambda: len(well.rows("evaluator")) >= len(before) + 3)
    after = well.rows("evaluator")
    assert after[: len(before)] == before
    steps = [float(row["learner_steps"]) for row in after]
    assert steps == sorted(set(steps))
    record_property("seen", f"3 rows more after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the learner",
    holds="a new one goes on from the newest checkpoint; the actors act meanwhile",
)
def test_killed_learner(well, record_property):
    well.wait_for(well.checkpoints)
    process = well.node("learner")
    killed_at = time.monotonic()
    process.kill()
    process.wait()
    rows = len(well.rows("learner"))
    checkpoint = well.checkpoints()[-1]
    actor_steps = well.actor_steps()
    well.wait_for(lambda: well.actor_steps() > actor_steps + 1000)
    assert len(well.rows("learner")) == rows  # All that without it.
    well.wait_for(lambda: len(well.rows("learner")) > rows)
    assert f"Resuming from {checkpoint}" in well.log("learner").read_text()
    first = float(well.rows("learner")[rows]["learner_steps"])
    assert first > int(checkpoint.removeprefix("learner-"))
    record_property("seen", f"back at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the replay",
    holds="the actors fill a new one, the learner waits for its minimum and goes on; the count of "
    "actor steps goes on",
)
def test_killed_replay(well, record_property):
    steps = well.actor_steps()
    before = len(well.rows("learner"))
    killed_at = kill(well, "replay")
    well.wait_for(lambda: len(well.rows("learner")) >= before + 3)
    seen = f"back at work after {seconds_since(killed_at)}"
    rows = well.rows("learner")
    sizes = [float(row["replay_size"]) for row in rows[before:]]
    # The new one began empty and is being filled; nothing was learned below its minimum.
    assert sizes[-1] >= 1000
    assert sizes[-1] < 5000 or float(rows[-1]["actor_steps"]) > steps + 5000
    # The new one knows the count of a second before the other's end.
    counts = [float(row["actor_steps"]) for row in rows[before + 1 :]]
    assert counts == sorted(counts) and counts[0] >= steps
    assert well.actor_steps() >= steps
    record_property("seen", seen)


@pytest.mark.slow
@pytest.mark.fault(
    breaks="`kill -9` of all nodes at once",
    holds="all are back and the learner goes on from its checkpoint",
)
def test_everything_killed(well, record_property):
    well.wait_for(well.checkpoints)
    rows = len(well.rows("learner"))
    killed_at = time.monotonic()
    for process in well.nodes().values():
        process.kill()
    checkpoint = int(well.checkpoints()[-1].removeprefix("learner-"))
    well.wait_for(lambda: len(well.rows("learner")) > rows + 1)
    assert float(well.rows("learner")[-1]["learner_steps"]) > checkpoint
    assert len(well.nodes()) == 5
    record_property("seen", f"back at work after {seconds_since(killed_at)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replay", "learner", "evaluator", "actor_0"])
@pytest.mark.fault(
    breaks="SIGSTOP of any node for 30 s, then SIGCONT",
    holds="memory of all nodes stays within 100 MB of what it was, and all go on",
)
def test_stopped_node(name, well, record_property):
    nodes = well.nodes()
    memory = {name: process.memory_info().rss for name, process in nodes.items()}
    nodes[name].suspend()
    most = dict.fromkeys(nodes, 0)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(1)
        for other, process in nodes.items():
            most[other] = max(most[other], process.memory_info().rss)
    nodes[name].resume()
    growth = max(most[other] - memory[other] for other in nodes) / 1e6
    assert growth < 100
    rows = {other: len(well.rows(other)) for other in ("learner", "evaluator", "actor_0")}
    well.wait_for(lambda: all(len(well.rows(other)) > n for other, n in rows.items()))
    assert well.nodes() == nodes  # Nobody had to be started again.
    record_property("seen", f"{growth:.0f} MB more")


def test_the_run_of_these_tests_ends_well(run):
    run.signal(signal.SIGTERM)
    run.finish(LEAVE_WITHIN_SECONDS)
    assert run.exit_code == 143
    assert run.left_behind() == []
    evaluated = [float(row["learner_steps"]) for row in run.rows("evaluator")]
    assert evaluated == sorted(set(evaluated))


@pytest.mark.slow
@pytest.mark.fault(
    breaks="a node that dies more often than `run.max_restarts` allows",
    holds="the run ends, names the node and shows the end of its log; exit code 1",
)
def test_too_many_deaths(start):
    run = start(
        "launch/apex_dqn.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        CATCH,
        "--config.run.max_restarts=1",
    )
    run.wait_for(run.is_learning)
    first = run.node("evaluator")
    first.kill()
    run.wait_for(lambda: run.nodes().get("evaluator", first) != first)
    run.nodes()["evaluator"].kill()
    run.finish()
    assert run.exit_code == 1, run.output()
    assert run.left_behind() == []
    assert (
        "Node evaluator was killed (SIGKILL; by somebody, or by the kernel because memory ran "
        f"out), after 1 restarts within 600 s. {run.log('evaluator')} ends with:\n  | "
    ) in run.stdout()
    # What was learned is kept.
    assert run.checkpoints()[-1] == f"learner-{run.summary()['learner_steps']:012d}"


BROKEN_NODE = """
import sys
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import Catch
from apex_agents.environments.vector_environment import LockStepEnvironment
from apex_agents.config import RunConfig
from apex_agents.experiment import Experiment
from apex_agents.program import make_program
from apex_agents.replay.config import ReplayConfig
from apex_agents.launcher import launch_program
from apex_agents.runs.workdir import open_workdir


class Broken(Catch):
    def step(self, action):
        raise OSError("the emulator has gone")


def make_vector_environment(num_envs, seed, evaluation):
    broken = evaluation == (broken_node == "evaluator")
    return LockStepEnvironment([(Broken if broken else Catch)(seed=seed) for _ in range(num_envs)])


replay = ReplayConfig(max_size=1000, min_size=10)
agent = ApexDQNConfig(network="mlp", frame_stack=0, batch_size=8, replay=replay)
run = RunConfig(num_actors=1)
launch_type, broken_node, workdir = sys.argv[1:]
workdir = open_workdir(workdir, "broken", run)
experiment = Experiment(ApexDQNBuilder(agent), make_vector_environment, run, workdir)
sys.exit(launch_program(make_program(experiment), experiment, launch_type))
"""


@pytest.mark.fault(
    breaks="an environment that fails from the beginning",
    holds="reported at once, without a restart, with the traceback; exit code 1",
)
@pytest.mark.parametrize("node", ["actor_0", pytest.param("evaluator", marks=pytest.mark.slow)])
def test_failure_at_the_start(node, start):
    run = start("-c", BROKEN_NODE, "local_mp", node, "{workdir}").finish()
    assert run.exit_code == 1, run.output()
    assert run.left_behind() == []
    log = run.log(node)
    assert (
        f"Node {node} failed with exit code 1 before it began its work. {log} ends with:\n"
    ) in run.stdout()
    assert run.stdout().endswith("  | OSError: the emulator has gone\n")
    assert "it starts again" not in run.stdout()
    assert "Traceback" in log.read_text()


@pytest.mark.slow
def test_failure_in_a_thread_ends_everything_and_is_named(start):
    run = start("-c", BROKEN_NODE, "local_mt", "actor_0", "{workdir}").finish()
    assert run.exit_code == 1, run.output()
    assert run.stdout().endswith("\nNode actor_0 failed: OSError: the emulator has gone\n")
