"""Nodes of a run with several learners that die in its middle, by a real kill -9."""

from __future__ import annotations

import json

import pytest
from whole_runs import UNSETTLED, Command, seconds_since


@pytest.fixture(scope="module", params=["synchronous", "asynchronous"])
def run(start, request) -> Command:
    """A run of Catch that does not end by itself."""
    return start(
        "launch/apex_dqn.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        "--config=apex_dqn_catch",
        "--config.agent.batch_size=16",
        "--config.agent.num_sgd_steps_per_step=1",
        "--config.agent.replay.min_size=100",
        "--config.agent.replay.max_size=5000",
        # Neither the actors nor the learners wait for the other.
        "--config.agent.replay.samples_per_insert=None",
        "--config.run.num_learners=2",
        f"--config.run.learners.mode={request.param}",
        "--config.run.num_actors=1",
        "--config.run.num_envs_per_actor=2",
        *UNSETTLED,
    )


@pytest.mark.fault(
    breaks="`kill -9` of a node of a run with two learners, synchronous or asynchronous",
    holds="the other learner goes on; a new parameter server continues from the newest checkpoint, "
    "and the learners follow it",
)
@pytest.mark.parametrize("node", ["learner_0", "learner_1", "parameter_server", "replay"])
def test_killed_node_of_several_learners(run, node, record_property):
    files = ("learner", "learner_0", "learner_1", "evaluator")
    run.wait_for_rows(*files)
    run.wait_for(lambda: run.checkpoints() and len(run.nodes()) == 6)
    config = json.loads((run.workdir / "config.json").read_text())
    is_synchronous = config["run"]["learners"]["mode"] == "synchronous"
    checkpoint, learner_steps = run.newest_checkpoint(), run.learner_steps()
    rows = {name: len(run.rows(name)) for name in files}
    killed_at = run.kill(node)
    for name in files:
        # Rows of the one that died come from the new process, too.
        run.wait_for(lambda name=name: len(run.rows(name)) >= rows[name] + 3)
    record_property("seen", f"{node}: all at work after {seconds_since(killed_at)}")
    least = checkpoint if node == "parameter_server" else learner_steps
    run.wait_for(lambda: float(run.rows("learner")[-1]["learner_steps"]) > least)
    if is_synchronous:  # Both learners are part of the updates again.
        run.wait_for(lambda: float(run.rows("learner")[-1]["gradients_per_step"]) > 1.5)
    assert {name for name, number in run.num_restarts().items() if number} >= {node}
