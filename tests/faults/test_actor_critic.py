"""Nodes of A2C and A3C that die in the middle of a run, by a real kill -9."""

from __future__ import annotations

import time

import pytest
from whole_runs import Command, poll_until

MANY_RESTARTS = ("--config.run.max_restarts=100", "--config.run.restart_window_seconds=20")


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
        "--config.run.num_envs_per_actor=2",
        "--config.run.target_return=None",
        "--config.run.max_actor_steps=1000000000",
        "--config.run.checkpoint_period_seconds=0.5",
        "--config.run.evaluation.num_episodes=3",
        "--config.run.evaluation.min_period_seconds=0.5",
        *MANY_RESTARTS,
    )
    run.wait_for(lambda: run.rows("evaluator"))
    return run


def kill(run: Command, node: str) -> float:
    """Kills a node and waits until it has a new process; returns the time of the kill."""
    run.wait_for(lambda: len(run.nodes()) == 5)
    process = run.node(node)
    killed_at = time.monotonic()
    process.kill()
    run.wait_for(lambda: run.nodes().get(node, process) != process)
    return killed_at


def wait_for_learning(run: Command, gradients_per_step: float | None = None) -> None:
    """Waits for rows of the learner; the newest of so many gradients per step, if given."""
    rows = len(run.rows("learner"))
    run.wait_for(lambda: len(run.rows("learner")) >= rows + 2)
    if gradients_per_step is not None:
        run.wait_for(
            lambda: float(run.rows("learner")[-1]["gradients_per_step"]) == gradients_per_step
        )


@pytest.mark.fault(
    breaks="`kill -9` of a worker of A2C or A3C",
    holds="the learner continues without it (A2C: after `agent.max_wait_seconds`); a new one joins",
)
def test_killed_worker(run, mode, record_property):
    wait_for_learning(run, 2.0 if mode == "a2c" else 1.0)
    rows, learner_steps = len(run.rows("actor_0")), run.learner_steps()
    killed_at = kill(run, "actor_0")
    run.wait_for(lambda: run.learner_steps() > learner_steps)
    run.wait_for(lambda: any(float(r["transitions"]) > 0 for r in run.rows("actor_0")[rows:]))
    wait_for_learning(run, 2.0 if mode == "a2c" else 1.0)
    record_property("seen", f"{mode}: together again after {time.monotonic() - killed_at:.0f} s")


@pytest.mark.fault(
    breaks="`kill -9` of the learner of A2C or A3C",
    holds="a new one continues from the newest checkpoint, and all workers follow it",
)
def test_killed_learner_of_gradients(run, mode, record_property):
    run.wait_for(run.checkpoints)
    checkpoint = int(run.checkpoints()[-1].removeprefix("learner-"))
    killed_at = kill(run, "learner")
    rows = len(run.rows("learner"))
    run.wait_for(lambda: len(run.rows("learner")) > rows)
    assert float(run.rows("learner")[rows]["learner_steps"]) > checkpoint
    wait_for_learning(run, 2.0 if mode == "a2c" else 1.0)
    record_property("seen", f"{mode}: back at work after {time.monotonic() - killed_at:.0f} s")


@pytest.mark.fault(
    breaks="`kill -9` of the server with the queue of A2C or A3C",
    holds="gradients travel through a new one; the count of actor steps continues",
)
def test_killed_queue(run, mode, record_property):
    steps = run.actor_steps()
    killed_at = kill(run, "replay")
    wait_for_learning(run, 2.0 if mode == "a2c" else 1.0)
    seen = f"{mode}: back at work after {time.monotonic() - killed_at:.0f} s"
    assert poll_until(lambda: run.actor_steps() > steps)
    record_property("seen", seen)
