"""Nodes of A2C and A3C that die in the middle of a run, by a real kill -9."""

from __future__ import annotations

import pytest
from whole_runs import UNSETTLED, Command, seconds_since


@pytest.fixture(scope="module", params=["a2c", "a3c"])
def mode(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(start, mode) -> Command:
    """A run with two workers on Catch that does not end by itself."""
    run = start(
        f"launch/{mode}.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        "--config.environment.suite=toy",
        "--config.environment.task=catch",
        "--config.agent.max_wait_seconds=2",
        "--config.run.num_actors=2",
        "--config.run.num_envs_per_actor=2",
        *UNSETTLED,
    )
    run.wait_for(lambda: run.rows("evaluator"))
    return run


def kill(run: Command, node: str) -> float:
    run.wait_for(lambda: len(run.nodes()) == 5)
    return run.kill(node)


def wait_for_learning(run: Command, mode: str) -> None:
    """Waits for rows of the learner, and for one that has the gradients of all workers."""
    run.wait_for_rows("learner", number=2)
    expected = 2.0 if mode == "a2c" else 1.0
    run.wait_for(lambda: float(run.rows("learner")[-1]["gradients_per_step"]) == expected)


@pytest.mark.fault(
    breaks="`kill -9` of a worker of A2C or A3C",
    holds="the learner continues without it (A2C: after `agent.max_wait_seconds`); a new one joins",
)
def test_killed_worker(run, mode, record_property):
    wait_for_learning(run, mode)
    rows, learner_steps = len(run.rows("actor_0")), run.learner_steps()
    killed_at = kill(run, "actor_0")
    run.wait_for(lambda: run.learner_steps() > learner_steps)
    run.wait_for(lambda: any(float(r["transitions"]) > 0 for r in run.rows("actor_0")[rows:]))
    wait_for_learning(run, mode)
    record_property("seen", f"{mode}: together again after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the learner of A2C or A3C",
    holds="a new one continues from the newest checkpoint, and all workers follow it",
)
def test_killed_learner_of_gradients(run, mode, record_property):
    run.wait_for(run.checkpoints)
    checkpoint = run.newest_checkpoint()
    killed_at = kill(run, "learner")
    rows = len(run.rows("learner"))
    run.wait_for(lambda: len(run.rows("learner")) > rows)
    assert float(run.rows("learner")[rows]["learner_steps"]) > checkpoint
    wait_for_learning(run, mode)
    record_property("seen", f"{mode}: back at work after {seconds_since(killed_at)}")


@pytest.mark.fault(
    breaks="`kill -9` of the server with the queue of A2C or A3C",
    holds="gradients travel through a new one; the count of actor steps continues",
)
def test_killed_queue(run, mode, record_property):
    steps = run.actor_steps()
    killed_at = kill(run, "replay")
    wait_for_learning(run, mode)
    seen = f"{mode}: back at work after {seconds_since(killed_at)}"
    run.wait_for(lambda: run.actor_steps() > steps)
    record_property("seen", seen)


def test_killed_learner_that_acts(start):
    run = start(
        "launch/a2c.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        "--config.environment.suite=toy",
        "--config.environment.task=catch",
        "--config.run.num_actors=1",
        *UNSETTLED,
    )
    run.wait_for(lambda: run.rows("evaluator"))
    run.wait_for(run.checkpoints)
    checkpoint, actor_steps = run.newest_checkpoint(), run.actor_steps()
    assert sorted(run.nodes()) == ["evaluator", "learner", "replay"]
    rows, actor_rows = len(run.rows("learner")), len(run.rows("actor_0"))
    run.kill("learner")
    run.wait_for(lambda: len(run.rows("learner")) > rows)
    assert float(run.rows("learner")[rows]["learner_steps"]) > checkpoint
    run.wait_for(lambda: run.actor_steps() > actor_steps)
    run.wait_for(lambda: len(run.rows("actor_0")) > actor_rows)
    # The server with the counts and the parameters dies, too.
    actor_steps = run.actor_steps()
    run.kill("replay")
    run.wait_for(lambda: run.actor_steps() > actor_steps)
    evaluations = len(run.rows("evaluator"))
    run.wait_for(lambda: len(run.rows("evaluator")) > evaluations)
