"""Runs with too little of a resource."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import time

import pytest
from whole_runs import Command

FULL_SECONDS = 40
# Continues as a command for which a folder, the first argument, is a filesystem of 8 MB.
ON_A_SMALL_DISK = """
import os, sys
folder, *command = sys.argv[1:]
mount = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'
namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
os.execvp("unshare", [*namespace, folder, sys.executable, *command])
"""


WRITERS = ("learner", "actor_0", "actor_1")


@pytest.fixture
def run(start, mount_namespaces, tmp_path) -> Command:
    run = start(
        "-c",
        ON_A_SMALL_DISK,
        str(tmp_path),
        "launch/apex_dqn.py",
        "--lp_launch_type=local_mp",
        f"--workdir={tmp_path / 'run'}",
        "--config=tests/faults/catch.py",
        "--config.run.replay_checkpoint_period_seconds=5",
    )
    # The filesystem as the command sees it.
    run.workdir = pathlib.Path(f"/proc/{run.pid}/root{tmp_path}/run")
    return run


def read_times(run: Command) -> dict[str, list[float]]:
    """Return the wall times of all rows by the nodes that have written them."""
    return {name: [float(row["wall_time_seconds"]) for row in run.rows(name)] for name in WRITERS}


@pytest.mark.fault(
    breaks="a disk that is full for 40 s in the middle of a run",
    holds="no node dies; rows of these 40 s appear when there is room; checkpoints continue",
)
def test_full_disk(run, record_property):
    run.wait_for(lambda: run.is_learning() and run.checkpoints() and all(map(run.rows, WRITERS)))
    nodes, before = run.nodes(), read_times(run)
    filler = run.workdir.parent / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    time.sleep(FULL_SECONDS)
    rows = {name: len(run.rows(name)) for name in WRITERS}
    kept = run.checkpoints()
    assert kept  # Earlier checkpoints stay.
    filler.unlink()
    run.wait_for(lambda: all(len(run.rows(name)) > rows[name] + 1 for name in rows))
    run.wait_for(lambda: run.checkpoints()[-1] > kept[-1])
    assert run.nodes() == nodes  # None was restarted.
    for name, times in read_times(run).items():
        # A row comes every 5 s; the newest before may have been as old.
        begin, end = before[name][-1] + 5, before[name][-1] + FULL_SECONDS
        assert any(begin < seconds < end for seconds in times), times
    record_property("seen", f"full for {FULL_SECONDS} s")
    run.signal(signal.SIGTERM)
    assert run.finish().exit_code == 143, run.output()
    assert run.left_behind() == []


@pytest.mark.fault(
    breaks="a replay that will not fit into the machine's memory",
    holds="a warning before anything starts, with both sizes and what would fit",
)
def test_too_little_memory(start):
    run = start(
        "launch/apex_dqn.py",
        "--lp_launch_type=local_mp",
        "--workdir={workdir}",
        "--config=tests/faults/catch.py",
        "--config.agent.replay.max_size=2000000000",
        "--config.run.max_learner_steps=1",
    )
    run.finish()
    assert run.exit_code == 0, run.output()
    # 2 billion items of about 1.4 KB.
    assert re.search(r"warning: .* \d\.\d TB ", run.output()), run.output()
