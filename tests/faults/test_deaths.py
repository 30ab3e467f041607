"""Nodes that die in the middle of a run, by a real kill -9."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from whole_runs import MANY_RESTARTS, Command, seconds_since

from apex_agents.runs.workdir import parse_replay_name


@pytest.fixture(scope="module")
def runs() -> list[Command]:
    return []


@pytest.fixture
def run(start, runs) -> Command:
    """A run in which all nodes work; tests share one for as long as it lives."""
    if not runs or not runs[-1].is_running():
        runs.append(start_catch(start, *MANY_RESTARTS))
    run = runs[-1]
    run.wait_for_rows("learner", "evaluator")
    steps = run.actor_steps()
    run.wait_for(lambda: run.actor_steps() > steps and len(run.nodes()) == 5)
    return run


def start_catch(start, *flags: str) -> Command:
    """Starts a run of Catch that does not end by itself."""
    options = ("--lp_launch_type=local_mp", "--workdir={workdir}")
    return start("launch/apex_dqn.py", *options, "--config=tests/faults/catch.py", *flags)


@pytest.mark.fault(
    breaks="`kill -9` of an actor",
    holds="the learner continues meanwhile; a new actor adds transitions",
)
def test_killed_actor(run, record_property):
    rows, learner_steps = len(run.rows("actor_0")), run.learner_steps()
    killed_at = run.kill("actor_0")
    run.wait_for(lambda: run.learner_steps() > learner_steps)
    run.wait_for(lambda: any(float(r["transitions"]) > 0 for r in run.rows("actor_0")[rows:]))
    record_property("seen", f"back at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the evaluator",
    holds="a new one evaluates; no row of its CSV file is lost or doubled",
)
def test_killed_evaluator(run, record_property):
    before = run.rows("evaluator")
    killed_at = run.kill("evaluator")
    run.wait_for(lambda: len(run.rows("evaluator")) >= len(before) + 3)
    after = run.rows("evaluator")
    assert after[: len(before)] == before
    steps = [float(row["learner_steps"]) for row in after]
    assert steps == sorted(set(steps))
    record_property("seen", f"3 rows more after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the learner",
    holds="the actors continue meanwhile; a new learner continues from the newest checkpoint",
)
def test_killed_learner(run, record_property):
    run.wait_for(run.checkpoints)
    killed_at = run.kill("learner")
    rows, actor_steps = len(run.rows("learner")), run.actor_steps()
    checkpoint = run.newest_checkpoint()
    while run.actor_steps() <= actor_steps + 1000:  # All that without a learner.
        run.node("learner").kill()
    assert len(run.rows("learner")) == rows
    run.wait_for_rows("learner")
    assert float(run.rows("learner")[rows]["learner_steps"]) > checkpoint
    record_property("seen", f"back at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the replay",
    holds="the actors fill a new one, for whose minimum size the learner waits; actor steps are "
    "counted on",
)
def test_killed_replay(run, record_property):
    steps = run.actor_steps()
    killed_at = run.kill("replay")
    before = len(run.rows("learner"))
    run.wait_for(lambda: len(run.rows("learner")) >= before + 3)
    seen = f"back at work after {seconds_since(killed_at)}"
    rows = run.rows("learner")[before:]
    # The new replay began empty and is being filled; nothing was learned below its minimum.
    size = float(rows[-1]["replay_size"])
    assert size >= 1000
    assert size < 5000 or float(rows[-1]["actor_steps"]) > steps + 5000
    # The new replay knows the count of a second before the end of the old one.
    counts = [float(row["actor_steps"]) for row in rows[1:]]
    assert counts == sorted(counts) and counts[0] >= steps
    assert run.actor_steps() >= steps
    record_property("seen", seen)


@pytest.fixture
def run_of_two(start) -> Iterator[Command]:
    """A run with two replays, both of which have what the learner starts at."""
    run = start_catch(start, *MANY_RESTARTS, "--config.run.num_replays=2")
    run.wait_for_rows("learner", "evaluator")
    run.wait_for(lambda: float(run.rows("learner")[-1]["replay_size"]) >= 2_000)
    yield run
    run.close()


@pytest.mark.fault(
    breaks="`kill -9` of one of two replays",
    holds="the learner continues with the other one within seconds; a new one is filled by its "
    "actors; actor steps are counted on",
)
@pytest.mark.parametrize("node", ["replay", "replay_1"])
def test_killed_replay_of_two(run_of_two, record_property, node):
    run = run_of_two
    before, index = len(run.rows("learner")), parse_replay_name(node)
    steps = run.actor_steps(index)
    killed_at = run.kill(node)
    run.wait_for(lambda: len(run.rows("learner")) >= before + 2)
    record_property("seen", f"learns after {seconds_since(killed_at)}")
    run.wait_for(lambda: run.actor_steps(index) > steps + 5_000)
    counts = [float(row["actor_steps"]) for row in run.rows("learner")]
    assert counts == sorted(counts)
    assert {name for name, number in run.num_restarts().items() if number} == {node}


@pytest.mark.fault(
    breaks="SIGSTOP of one of two replays, then SIGCONT",
    holds="the learner continues with the other one within seconds, and actors fill both again",
)
def test_stopped_replay_of_two(run_of_two, record_property):
    run = run_of_two
    process = run.node("replay_1")
    process.suspend()
    stopped_at, before = time.monotonic(), len(run.rows("learner"))
    run.wait_for(lambda: len(run.rows("learner")) >= before + 3)
    record_property("seen", f"learns after {seconds_since(stopped_at)}")
    steps = run.actor_steps(1)
    process.resume()
    run.wait_for(lambda: run.actor_steps(1) > steps + 5_000)
    assert not any(run.num_restarts().values())


@pytest.mark.fault(
    breaks="`kill -9` of all nodes at once",
    holds="all are back, and the learner continues from its checkpoint",
)
def test_everything_killed(run, record_property):
    run.wait_for(run.checkpoints)
    rows = len(run.rows("learner"))
    killed_at = time.monotonic()
    for process in run.nodes().values():
        process.kill()
    checkpoint = run.newest_checkpoint()
    run.wait_for(lambda: len(run.rows("learner")) > rows + 1 and len(run.nodes()) == 5)
    assert float(run.rows("learner")[-1]["learner_steps"]) > checkpoint
    record_property("seen", f"back at work after {seconds_since(killed_at)}")


@pytest.mark.parametrize("name", ["replay", "learner", "evaluator", "actor_0"])
@pytest.mark.fault(
    breaks="SIGSTOP of any node for 30 s, then SIGCONT",
    holds="memory of all nodes stays within 100 MB of what it was, and all continue",
)
def test_stopped_node(name, run, record_property):
    nodes = run.nodes()
    memory = {node: process.memory_info().rss for node, process in nodes.items()}
    nodes[name].suspend()
    most = dict.fromkeys(nodes, 0)
    for _ in range(30):
        time.sleep(1)
        for node, process in nodes.items():
            most[node] = max(most[node], process.memory_info().rss)
    nodes[name].resume()
    growth = max(most[node] - memory[node] for node in nodes) / 1e6
    assert growth < 100
    run.wait_for_rows("learner", "evaluator", "actor_0")
    assert run.nodes() == nodes  # None was restarted.
    record_property("seen", f"{growth:.0f} MB more")


def test_sigterm_after_a_death(run):
    run.kill("evaluator")
    run.signal(signal.SIGTERM)
    assert run.finish().exit_code == 143
    assert run.left_behind() == []
    assert run.exit_codes()["learner"] == run.exit_codes()["replay"] == 0
    evaluated = [float(row["learner_steps"]) for row in run.rows("evaluator")]
    assert evaluated == sorted(set(evaluated))


@pytest.mark.fault(
    breaks="a node that dies more often than `run.max_restarts` allows",
    holds="the run ends, names the node and shows the end of its log; exit code 1",
)
def test_too_many_deaths(start):
    run = start_catch(start, "--config.run.max_restarts=1")
    run.wait_for(run.is_learning)
    run.kill("evaluator")
    run.node("evaluator").kill()
    assert run.finish().exit_code == 1, run.output()
    assert run.left_behind() == []
    assert run.num_restarts() == {"evaluator": 1}
    assert run.exit_codes()["evaluator"] == -signal.SIGKILL
    assert str(run.log("evaluator")) in run.output()
    # What was learned is kept.
    assert run.ended_with_a_checkpoint()


@pytest.mark.fault(
    breaks="an environment that fails from the beginning",
    holds="reported at once, without a restart, with the traceback; exit code 1",
)
@pytest.mark.parametrize("node", ["actor_0", "evaluator"])
def test_failure_at_the_start(node, start):
    run = start("tests/programs/broken_environment.py", "local_mp", node, "{workdir}").finish()
    assert run.exit_code == 1, run.output()
    assert run.left_behind() == []
    assert run.num_restarts() == {}
    assert run.exit_codes()[node] == 1
    assert str(run.log(node)) in run.output()
    assert run.stdout().endswith("OSError: the emulator has gone\n")
    assert "Traceback" in run.log(node).read_text()


def test_failure_in_a_thread_ends_everything_and_is_named(start):
    run = start("tests/programs/broken_environment.py", "local_mt", "actor_0", "{workdir}").finish()
    assert run.exit_code == 1, run.output()
    assert "actor_0" in run.stdout().splitlines()[-1]
    assert run.stdout().endswith("OSError: the emulator has gone\n")
