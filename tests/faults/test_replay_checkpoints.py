"""Checkpoints of the replay, which a run may save so as not to fill it anew."""

from __future__ import annotations

import pathlib
import re
import signal

import pytest
from whole_runs import Command

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
def runs() -> list[Command]:
    return []


@pytest.fixture
def run(start, runs) -> Command:
    """A run with a full and saved replay; tests share one for as long as it lives."""
    if not runs or not runs[-1].is_running():
        runs.append(start(*COMMAND, "--workdir={workdir}"))
    run = runs[-1]
    run.wait_for(lambda: saved(run) and replay_sizes(run, 0)[-1:] == [5000])
    return run


@pytest.mark.fault(
    breaks="`kill -9` of a replay that is saved (`run.replay_checkpoint_period_seconds`)",
    holds="the new one has the transitions of the checkpoint",
)
def test_killed_replay_has_its_transitions_back(run):
    assert re.search(r" [4-9]\.\d MB ", run.stdout())  # Announced: 5000 items of about 1 KB.
    rows = len(run.rows("learner"))
    checkpoint = saved(run)
    run.wait_for(lambda: saved(run) != checkpoint)  # One with a full replay.
    run.node("replay").kill()
    run.wait_for(lambda: run.num_restarts() == {"replay": 1})
    run.wait_for(lambda: len(run.rows("learner")) >= rows + 3)
    assert min(replay_sizes(run, rows)) == 5000
    counts = [float(row["actor_steps"]) for row in run.rows("learner")]
    assert counts[-1] > counts[rows - 1]


@pytest.mark.fault(
    breaks="a corrupted checkpoint of the replay",
    holds="it is put aside with a warning, the replay begins empty, the run continues",
)
def test_corrupted_checkpoint_of_the_replay(run, start):
    run.signal(signal.SIGTERM)
    assert run.finish().exit_code == 143, run.output()
    for done in saved(run):  # Reverb removes the one before the last only after it has the last.
        chunks = done.with_name("chunks.tfrecord")
        content = bytearray(chunks.read_bytes())
        content[: len(content) // 2] = bytes(len(content) // 2)
        chunks.write_bytes(content)
    rows = len(run.rows("learner"))
    last_count = run.actor_steps()

    again = start(*COMMAND, f"--workdir={run.workdir}")
    again.wait_for(lambda: len(run.rows("learner")) > rows)
    again.signal(signal.SIGTERM)
    assert again.finish().exit_code == 143, again.output()
    assert float(run.rows("learner")[rows]["actor_steps"]) > last_count
    (aside,) = (run.workdir / "checkpoints").glob("replay-damaged-*")
    assert str(aside) in run.log("replay").read_text()
