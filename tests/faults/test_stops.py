"""The ways in which a run is stopped from outside, and how it is resumed."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest
from whole_runs import ENDLESS, Command, apex_dqn, seconds_since

# Continues as a command whose output goes into a pipe without a reader.
WITHOUT_A_READER = """
import os, sys
receiver, sender = os.pipe()
os.dup2(sender, 1)
os.close(sender)
os.close(receiver)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


SAME_SIGNAL_SECONDS = 1.0  # A second SIGINT within this time is no other one.

# Continues as `timeout`, whose time can be ended by SIGALRM.
UNDER_TIMEOUT = """
import os, sys
os.execvp("timeout", ["timeout", "-s", "INT", "3600", sys.executable, *sys.argv[1:]])
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


def is_idle(process: psutil.Process) -> bool:
    """Tells whether a process computes nothing for a moment."""
    before = sum(process.cpu_times()[:2])
    time.sleep(0.5)
    return sum(process.cpu_times()[:2]) == before


@pytest.mark.fault(
    breaks="Ctrl-C",
    holds="a checkpoint of the last step, nothing left behind, exit code 130",
)
def test_ctrl_c(run, record_property):
    run.press_ctrl_c()
    started = time.monotonic()
    run.finish()
    record_property("seen", f"ended after {seconds_since(started)}")
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert run.ended_with_a_checkpoint()
    assert run.summary()["finished"] is False
    assert (run.summary()["exit_code"], "SIGINT" in run.summary()["reason"]) == (130, True)
    assert (run.workdir / "plots").is_dir()
    assert run.exit_codes()["learner"] == run.exit_codes()["replay"] == 0
    assert "Traceback" not in run.output()


@pytest.mark.fault(
    breaks="`timeout -s INT`, which sends SIGINT twice",
    holds="as Ctrl-C: a checkpoint of the last step, exit code 130",
)
def test_sigint_of_timeout(start):
    # It waits for the end of the command, which its own signal does not reach twice.
    run = start("-c", UNDER_TIMEOUT, *apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    os.kill(run.pid, signal.SIGALRM)  # What ends its time.
    run.finish()
    assert run.left_behind() == []
    assert run.ended_with_a_checkpoint()
    assert run.summary()["exit_code"] == 130


@pytest.mark.fault(
    breaks="Ctrl-C twice, while a node hangs",
    holds="everything ends at once, nothing left behind, exit code 130",
)
def test_ctrl_c_twice(run, record_property):
    run.node("learner").suspend()
    run.press_ctrl_c()
    # The others exit; the launcher waits for the learner.
    run.wait_for(lambda: set(run.nodes()) == {"learner", "replay"})
    seen_at = time.monotonic()  # The launcher has the first one.
    run.wait_for(lambda: time.monotonic() > seen_at + SAME_SIGNAL_SECONDS)
    run.press_ctrl_c()
    started = time.monotonic()
    run.finish()
    record_property("seen", f"ended after {seconds_since(started)}")
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    # Without the second Ctrl-C, the replay would have exited by itself.
    assert run.exit_codes()["learner"] == run.exit_codes()["replay"] == -signal.SIGKILL


@pytest.mark.fault(
    breaks="Ctrl-C when the output has no reader any more (a `tee` that ended first)",
    holds="as without: a checkpoint of the last step, exit code 130",
)
def test_ctrl_c_without_a_reader(start):
    run = start("-c", WITHOUT_A_READER, *apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    run.press_ctrl_c()
    run.finish()
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert run.ended_with_a_checkpoint()


@pytest.mark.fault(
    breaks="SIGTERM to the launcher, then the same command",
    holds="exit code 143; the run resumes from a checkpoint of its last step, with all counts",
)
def test_a_run_resumes_where_it_was_stopped(start, start_again):
    flags = ("--config.run.checkpoint_period_seconds=1", *ENDLESS)
    first = start(*apex_dqn("local_mp", *flags))
    first.wait_for(lambda: first.checkpoints() and first.rows("evaluator"))
    first.signal(signal.SIGTERM)
    assert first.finish().exit_code == 143
    stopped = first.summary()
    assert (stopped["exit_code"], "SIGTERM" in stopped["reason"]) == (143, True)
    assert stopped["num_episodes"] > 0
    assert (first.workdir / "plots").is_dir()
    assert first.ended_with_a_checkpoint()
    evaluations = first.rows("evaluator")

    limit = stopped["learner_steps"] + 56  # Eight learner steps are one call.
    second = start_again(first, *flags, f"--config.run.max_learner_steps={limit}").finish()
    assert second.exit_code == 0, second.output()
    summary = first.summary()
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
    holds="nothing left behind, exit code 143",
)
def test_sigterm_while_nodes_start(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(lambda: run.log("replay").exists() or run.log("learner").exists())
    run.signal(signal.SIGTERM)
    run.finish()
    assert run.exit_code == 143, run.output()
    assert run.summary()["learner_steps"] == 0
    assert run.left_behind() == []


@pytest.mark.fault(
    breaks="Ctrl-C while the replay does not answer",
    holds="a checkpoint of the last step all the same, nothing left behind, exit code 130",
)
def test_ctrl_c_without_a_replay(run, record_property):
    run.node("replay").suspend()
    actor = run.node("actor_0")
    run.wait_for(lambda: is_idle(actor))  # It is inside a call that waits for the server.
    run.press_ctrl_c()
    started = time.monotonic()
    run.finish()
    record_property("seen", f"ended after {seconds_since(started)}")
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert run.ended_with_a_checkpoint()


@pytest.mark.fault(
    breaks="`kill -9` of the launcher",
    holds="all nodes exit, the learner with a checkpoint; the same command resumes the run",
)
def test_killed_launcher(run, start_again, record_property):
    run.signal(signal.SIGKILL)
    started = time.monotonic()
    run.finish()
    assert run.left_behind() == []
    record_property("seen", f"all gone after {seconds_since(started)}")
    assert run.ended_with_a_checkpoint()
    limit = run.summary()["learner_steps"] + 20
    again = start_again(run, f"--config.run.max_learner_steps={limit}").finish()
    assert again.exit_code == 0, again.output()
    steps = [float(row["learner_steps"]) for row in run.rows("learner")]
    assert steps == sorted(steps) and run.summary()["learner_steps"] >= limit


@pytest.mark.fault(
    breaks="`kill -9` of the launcher while nodes are stopped (SIGSTOP)",
    holds="they are continued, and exit",
)
def test_killed_launcher_of_a_stopped_node(run):
    run.node("actor_0").suspend()
    run.signal(signal.SIGKILL)
    run.finish()
    assert run.left_behind() == []


def press_ctrl_z(run: Command) -> list[psutil.Process]:
    """Sends SIGTSTP as a terminal does; returns the command and its nodes, all of them stopped."""
    processes = [psutil.Process(run.pid), *run.nodes().values()]
    os.killpg(run.pid, signal.SIGTSTP)
    run.wait_for(lambda: all(one.status() == psutil.STATUS_STOPPED for one in processes))
    return processes


@pytest.mark.fault(
    breaks="Ctrl-Z, then `fg`",
    holds="all nodes stop with the command and continue with it; none is restarted",
)
def test_ctrl_z(run):
    press_ctrl_z(run)
    steps, stopped_at = run.actor_steps(), time.monotonic()
    run.wait_for(lambda: time.monotonic() > stopped_at + 2.0)
    assert run.actor_steps() == steps
    os.killpg(run.pid, signal.SIGCONT)  # What `fg` sends: to the command alone.
    run.wait_for(lambda: run.actor_steps() > steps)
    rows = len(run.rows("learner"))
    run.wait_for(lambda: len(run.rows("learner")) > rows)
    assert run.num_restarts() == {}
    run.press_ctrl_c()
    assert run.finish().exit_code == 130, run.output()
    assert run.left_behind() == []


@pytest.mark.fault(
    breaks="`kill -9` of a launcher that Ctrl-Z has stopped",
    holds="all nodes exit, the learner with a checkpoint",
)
def test_killed_launcher_that_is_stopped(run):
    press_ctrl_z(run)
    run.signal(signal.SIGKILL)
    run.finish()
    assert run.left_behind() == []
    assert run.ended_with_a_checkpoint()
