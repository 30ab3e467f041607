"""The ways in which a run is stopped from outside, and how it goes on."""

from __future__ import annotations

import json
import signal
import time

import pytest
from whole_runs import ENDLESS, LEAVE_WITHIN_SECONDS, Command, apex_dqn

# Goes on as a command whose output goes into a pipe that nobody reads.
WITHOUT_A_READER = """
import os, sys
receiver, sender = os.pipe()
os.dup2(sender, 1)
os.close(sender)
os.close(receiver)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def run(start) -> Command:
    """A run that learns and does not end by itself."""
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    return run


@pytest.fixture
def start_again(start):
    """Gives the command of a run again, with the same work directory."""

    def start_again(run: Command, *flags: str) -> Command:
        workdir = str(run.workdir)
        return start(*[arg.replace("{workdir}", workdir) for arg in apex_dqn("local_mp", *flags)])

    return start_again


def last_checkpoint_is_of_the_end(run) -> bool:
    return run.checkpoints()[-1] == f"learner-{run.summary()['learner_steps']:012d}"


@pytest.mark.fault(
    breaks="Ctrl-C",
    holds="a checkpoint of the last step, nobody left behind, exit code 130",
)
def test_ctrl_c(run, record_property):
    run.press_ctrl_c()
    started = time.monotonic()
    run.finish(LEAVE_WITHIN_SECONDS)
    record_property("seen", f"ended after {time.monotonic() - started:.1f} s")
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert last_checkpoint_is_of_the_end(run)
    assert run.summary()["finished"] is False
    assert run.summary()["reason"] == "stopped from outside"
    assert "            reason: stopped from outside\n" in run.stdout()
    assert "Traceback" not in run.output()


@pytest.mark.fault(
    breaks="Ctrl-C twice, while a node hangs",
    holds="everything ends at once, nobody left behind, exit code 130",
)
def test_ctrl_c_twice(run, record_property):
    run.node("learner").suspend()  # Would be waited for.
    run.press_ctrl_c()
    time.sleep(2)
    assert run.node("learner").is_running()
    run.press_ctrl_c()
    started = time.monotonic()
    run.finish(timeout=3)
    record_property("seen", f"ended after {time.monotonic() - started:.1f} s")
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []


@pytest.mark.slow
@pytest.mark.fault(
    breaks="Ctrl-C when nobody reads the output any more (a `tee` that ended first)",
    holds="as without: a checkpoint of the last step, exit code 130",
)
def test_ctrl_c_without_a_reader(start):
    run = start("-c", WITHOUT_A_READER, *apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    run.press_ctrl_c()
    run.finish(LEAVE_WITHIN_SECONDS)
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert last_checkpoint_is_of_the_end(run)


@pytest.mark.fault(
    breaks="SIGTERM to the launcher, then the same command",
    holds="exit code 143; the run goes on from a checkpoint of its last step, with all counts",
)
def test_a_run_goes_on_where_it_was_stopped(start, start_again):
    flags = ("--config.run.checkpoint_period_seconds=1", *ENDLESS)
    first = start(*apex_dqn("local_mp", *flags))
    checkpoints = first.workdir / "checkpoints"
    first.wait_for(lambda: list(checkpoints.glob("learner-*[0-9]")) and first.rows("evaluator"))
    first.signal(signal.SIGTERM)
    assert first.finish().exit_code == 143
    stopped = first.summary()
    # The last checkpoint is that of the end.
    assert max(checkpoints.glob("learner-*")).name == f"learner-{stopped['learner_steps']:012d}"
    evaluations = first.rows("evaluator")

    limit = stopped["learner_steps"] + 56  # Eight learner steps are one call.
    second = start_again(first, *flags, f"--config.run.max_learner_steps={limit}").finish()
    assert second.exit_code == 0, second.output()
    assert f"Going on from learner step {stopped['learner_steps']:,}" in second.stdout()
    summary = json.loads((first.workdir / "summary.json").read_text())
    assert summary["learner_steps"] == limit
    assert summary["actor_steps"] > stopped["actor_steps"]
    assert summary["wall_time_seconds"] > stopped["wall_time_seconds"]
    rows = first.rows("learner")
    steps = [float(row["learner_steps"]) for row in rows]
    assert steps == sorted(steps)
    assert first.rows("evaluator")[: len(evaluations)] == evaluations
    evaluated = [float(row["learner_steps"]) for row in first.rows("evaluator")]
    assert len(evaluated) == len(set(evaluated))
    assert evaluated == sorted(evaluated)


@pytest.mark.fault(
    breaks="SIGTERM while the nodes start",
    holds="nobody left behind, exit code 143",
)
def test_sigterm_while_nodes_start(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(lambda: run.log("replay").exists() or run.log("learner").exists())
    run.signal(signal.SIGTERM)
    run.finish(LEAVE_WITHIN_SECONDS + 5)  # Some nodes may still be importing TensorFlow.
    assert run.exit_code == 143, run.output()
    assert run.left_behind() == []


@pytest.mark.slow
@pytest.mark.fault(
    breaks="Ctrl-C while the replay is away",
    holds="a checkpoint of the last step all the same, nobody left behind, exit code 130",
)
def test_ctrl_c_without_a_replay(run, record_property):
    run.node("replay").suspend()
    time.sleep(3)  # Everybody is now inside a call that waits for the server.
    run.press_ctrl_c()
    started = time.monotonic()
    run.finish(LEAVE_WITHIN_SECONDS + 10)  # 5 s of which the launcher waits for the replay.
    record_property("seen", f"ended after {time.monotonic() - started:.1f} s")
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert last_checkpoint_is_of_the_end(run)


@pytest.mark.fault(
    breaks="`kill -9` of the launcher",
    holds="all nodes notice and leave, the learner with a checkpoint; the same command goes on",
)
def test_killed_launcher(run, start_again, record_property):
    run.signal(signal.SIGKILL)
    started = time.monotonic()
    run.finish()
    while run.processes() and time.monotonic() < started + LEAVE_WITHIN_SECONDS:
        time.sleep(0.1)
    record_property("seen", f"nobody left after {time.monotonic() - started:.1f} s")
    assert run.left_behind() == []
    assert last_checkpoint_is_of_the_end(run)
    limit = run.summary()["learner_steps"] + 20
    again = start_again(run, f"--config.run.max_learner_steps={limit}")
    assert again.finish().exit_code == 0, again.output()
    assert "Going on from learner step" in again.stdout()


@pytest.mark.slow
@pytest.mark.fault(
    breaks="`kill -9` of the launcher while nodes are stopped (SIGSTOP)",
    holds="they leave when they are continued; until then the same command is refused",
)
def test_killed_launcher_of_a_stopped_node(run, start_again):
    stopped = run.node("actor_0")
    stopped.suspend()
    run.signal(signal.SIGKILL)
    run.finish()
    time.sleep(5)
    assert run.processes() == [stopped]
    # Nobody else may go on in the folder meanwhile.
    again = start_again(run).finish()
    assert again.exit_code == 2, again.output()
    assert "is in use: another command runs in it." in again.output()
    stopped.resume()
    deadline = time.monotonic() + LEAVE_WITHIN_SECONDS
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run.left_behind() == []


@pytest.mark.slow
def test_a_run_that_reached_its_target_is_over_when_it_goes_on(start, start_again):
    # The new evaluator reports the last evaluation of the one before.
    flags = ("--config.run.target_return=-1", "--config.run.evaluation.min_period_seconds=100")
    first = start(*apex_dqn("local_mp", *ENDLESS, *flags)).finish()
    assert first.exit_code == 0, first.output()
    evaluations = first.rows("evaluator")
    assert len(evaluations) == 1
    second = start_again(first, *ENDLESS, *flags).finish()
    assert second.exit_code == 0, second.output()
    assert first.summary()["reason"] == "target return -1 reached"
    assert first.rows("evaluator") == evaluations
