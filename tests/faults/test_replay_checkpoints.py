"""The replay's own checkpoint, for those who do not want to fill it anew."""

from __future__ import annotations

import pathlib
import re
import signal

import pytest
from whole_runs import LEAVE_WITHIN_SECONDS, Command

pytestmark = pytest.mark.slow

COMMAND = (
    "launch/apex_dqn.py",
    "--lp_launch_type=local_mp",
    "--config=tests/faults/catch.py",
    "--config.run.replay_checkpoint_period_seconds=3",
)


def saved(run: Command) -> list[pathlib.Path]:
    return list((run.workdir / "checkpoints" / "replay").glob("*/DONE"))


def replay_sizes(run: Command, start: int) -> list[float]:
    return [float(row["replay_size"]) for row in run.rows("learner")[start:]]


@pytest.fixture(scope="module")
def run(start) -> Command:
    run = start(*COMMAND, "--workdir={workdir}")
    run.wait_for(lambda: saved(run) and replay_sizes(run, 0)[-1:] == [5000])
    return run


@pytest.mark.fault(
    breaks="`kill -9` of a replay that is saved (`run.replay_checkpoint_period_seconds`)",
    holds="the new one has the transitions of the checkpoint",
)
def test_killed_replay_has_its_transitions_back(run):
    # 5000 items of about 1 KB.
    told = r"Saving the replay every 3 s and at the end: up to [4-9]\.\d MB each time, .* free\."
    assert re.search(told, run.stdout())
    rows = len(run.rows("learner"))
    checkpoint = saved(run)
    run.wait_for(lambda: saved(run) != checkpoint)  # One with a full replay.
    process = run.node("replay")
    process.kill()
    run.wait_for(lambda: run.nodes().get("replay", process) != process)
    run.wait_for(lambda: len(run.rows("learner")) >= rows + 3)
    assert min(replay_sizes(run, rows)) == 5000
    counts = [float(row["actor_steps"]) for row in run.rows("learner")]
    assert counts[-1] > counts[rows - 1]


@pytest.mark.fault(
    breaks="a damaged checkpoint of the replay",
    holds="it is put aside with a warning, the replay begins empty, the run goes on",
)
def test_damaged_checkpoint_of_the_replay(run, start):
    run.signal(signal.SIGTERM)
    run.finish(LEAVE_WITHIN_SECONDS)
    assert run.exit_code == 143, run.output()
    (done,) = saved(run)  # Of the end; there is never more than the newest.
    chunks = done.with_name("chunks.tfrecord")
    content = bytearray(chunks.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    chunks.write_bytes(content)
    rows = len(run.rows("learner"))
    last_count = run.actor_steps()

    again = start(*COMMAND, f"--workdir={run.workdir}")
    again.wait_for(lambda: len(run.rows("learner")) > rows)
    again.signal(signal.SIGTERM)
    assert again.finish(LEAVE_WITHIN_SECONDS).exit_code == 143, again.output()
    assert float(run.rows("learner")[rows]["actor_steps"]) > last_count
    (aside,) = (run.workdir / "checkpoints").glob("replay-damaged-*")
    assert "The replay begins empty" in run.log("replay").read_text()
    assert str(aside) in run.log("replay").read_text()
