"""Long runs; `benchmarks/soak.py` does the work and judges it by its exit code."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from whole_runs import ROOT


def soak(workdir: pathlib.Path, *args: str) -> str:
    command = [sys.executable, "benchmarks/soak.py", f"--workdir={workdir}", *args]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    return result.stdout


@pytest.mark.fault(
    breaks="200 times `kill -9` of a random node in half an hour, with one replay and with two",
    holds="CartPole's target is reached all the same; no orphan, no row of the evaluator lost or "
    "doubled",
)
@pytest.mark.parametrize("num_replays", [1, 2])
def test_random_kills(record_property, num_replays, tmp_path):
    flags = ("--minutes", "30", "--kills", "200", f"--replays={num_replays}")
    printed = soak(tmp_path / "run", *flags)
    (kills,) = re.findall(r"minutes, (\d+) kills", printed)
    assert int(kills) >= 200
    (first,) = re.findall(r"target first reached after (\d+) kills", printed)
    record_property("seen", f"{kills} kills, target reached after {first}")


@pytest.mark.fault(
    breaks="half an hour without a break",
    holds="no node has more than 3 open files or 5 threads more at the end than after a minute",
)
def test_half_an_hour(record_property, tmp_path):
    printed = soak(tmp_path / "run", "--minutes", "30")
    rows = re.findall(r"^(\w+) +(\d+) -> (\d+) \(max \d+\) +(\d+) -> (\d+)", printed, re.M)
    assert len(rows) == 5
    for name, files, files_at_end, threads, threads_at_end in rows:
        assert int(files_at_end) <= int(files) + 3, name
        assert int(threads_at_end) <= int(threads) + 5, name
    record_property("seen", ", ".join(f"{r[0]} {r[1]} -> {r[2]} files" for r in rows))
