"""Nodes of R2D2 that die in the middle of a run with two replays, by a real kill -9."""

from __future__ import annotations

import pytest
from whole_runs import UNSETTLED, Command, seconds_since


@pytest.fixture(scope="module")
def run(start) -> Command:
    """A run of Catch that does not end by itself."""
    return start(
        "launch/r2d2.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        "--config.environment.suite=toy",
        "--config.environment.task=catch",
        "--config.agent.batch_size=8",
        "--config.agent.replay.min_size=100",
        "--config.agent.replay.max_size=5000",
        # Neither the actors nor the learner wait for the other.
        "--config.agent.replay.samples_per_insert=None",
        "--config.run.num_replays=2",
        "--config.run.num_actors=2",
        "--config.run.num_envs_per_actor=2",
        *UNSETTLED,
    )


@pytest.mark.fault(
    breaks="`kill -9` of a node of R2D2 with two replays",
    holds="the others continue; a new one acts, learns from the newest checkpoint, evaluates, or "
    "is filled with sequences",
)
@pytest.mark.parametrize("node", ["actor_0", "evaluator", "replay_1", "learner"])
def test_killed_node_of_r2d2(run, node, record_property):
    run.wait_for_rows("learner", "evaluator")
    run.wait_for(lambda: run.checkpoints() and len(run.nodes()) == 6)
    checkpoint = run.newest_checkpoint()
    rows = {name: len(run.rows(name)) for name in ("actor_0", "evaluator", "learner")}
    learner_steps, steps_of_replay = run.learner_steps(), run.actor_steps(1)
    killed_at = run.kill(node)
    run.wait_for(lambda: len(run.rows("learner")) >= rows["learner"] + 3)
    run.wait_for(lambda: len(run.rows("evaluator")) >= rows["evaluator"] + 2)
    run.wait_for(
        lambda: any(float(r["transitions"]) for r in run.rows("actor_0")[rows["actor_0"] :])
    )
    run.wait_for(lambda: run.actor_steps(1) > steps_of_replay)
    record_property("seen", f"{node}: all at work after {seconds_since(killed_at)}")
    least = checkpoint if node == "learner" else learner_steps
    assert float(run.rows("learner")[-1]["learner_steps"]) > least
    assert {name for name, number in run.num_restarts().items() if number} >= {node}
