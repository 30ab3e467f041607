"""Tests of what sums the benchmarks up."""

import re
import subprocess
import sys

import bench
import figure
import pytest
from measuring import Report, Row, Spread, at_least, at_most, read_reports, report, spread

ROWS = [
    Row("agent steps/s", Spread(1500.0, 1400.4, 1600.0), "steps/s"),
    at_least("share", Spread(0.5, 0.4, 0.6), 0.5),
    at_most("bytes", Spread(0.51, 0.4, 0.6), 0.5),
]
SERIES = {"environment": [1, 8], "share": {1: Spread(0.2, 0.1, 0.3), 8: Spread(0.5, 0.4, 0.6)}}


def test_reports_are_read_back(tmp_path):
    report("acting", str(tmp_path), ROWS, SERIES)
    (found,) = read_reports(str(tmp_path))
    assert (found.part, found.rows) == ("acting", ROWS)
    assert found.series == {
        "environment": [1, 8],
        "share": {"1": [0.2, 0.1, 0.3], "8": [0.5, 0.4, 0.6]},
    }


def test_table_says_what_holds():
    lines = bench.to_markdown(bench.to_cells("acting", ROWS)).splitlines()
    assert lines == [
        "| part | what | median (smallest to largest) | aim | holds |",
        "| --- | --- | --- | --- | --- |",
        "| acting | agent steps/s | 1,500 (1,400 to 1,600) steps/s |  |  |",
        "| acting | share | 0.5 (0.4 to 0.6) | >= 0.5 | yes |",
        "| acting | bytes | 0.51 (0.4 to 0.6) | <= 0.5 | no |",
    ]


def test_figure_of_what_was_measured(tmp_path):
    file = tmp_path / "figure.png"
    figure.draw(str(tmp_path), file)
    assert not file.exists()
    report("acting", str(tmp_path), ROWS, SERIES)
    report("unknown", str(tmp_path), ROWS)
    figure.draw(str(tmp_path), file)
    alone = file.stat().st_size
    assert alone > 5_000
    rounds = [{"inserts": n, "samples": n, "cores": {"actors": n, "replay": n}} for n in (1, 3)]
    costs = [{"sample": 9.0, "update": 1.0}]
    lanes_and_sizes = {"environment": {45: rounds, 90: rounds}, "sizes": {100: costs, 1000: costs}}
    report("scale", str(tmp_path), ROWS, lanes_and_sizes)
    report("replay_load", str(tmp_path), ROWS, {"pong": {"1 writer": rounds}})
    figure.draw(str(tmp_path), file)
    assert file.stat().st_size > 2 * alone


@pytest.mark.parametrize("part", bench.PARTS)
def test_every_part_is_a_script(part):
    command = [sys.executable, str(bench.HERE / f"{part}.py"), "--help"]
    assert "--rounds" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_estimate_for_a_larger_machine():
    """A core of an actor adds 1000/s, of the server 10,000/s; samples take 1.94 cores."""
    costs = {"added, server": 100.0, "sampled, server": 50.0, "sampled, learner": 150.0}
    replay_load = [
        Row(f"pong: CPU per transition {what}", spread([microseconds]), "us")
        for what, microseconds in costs.items()
    ]
    acting = [
        Row(f"agent steps/s, {environment} environments", spread([rate]))
        for environment, rate in ((1, 500.0), (32, 1_000.0))
    ]
    reports = [
        Report(part, "today", rows, {})
        for part, rows in (("acting", acting), ("replay_load", replay_load))
    ]
    estimate = bench.estimate_larger_machine(reports)
    added = (16 - 1.94) / (0.001 + 0.0001)
    assert f"{added:,.0f} transitions per second" in estimate
    assert f"actors on {added / 1_000:.1f} cores" in estimate
    assert bench.estimate_larger_machine(reports[:1]) is None
    assert bench.estimate_larger_machine(reports[1:]) is None


def test_reports_tell_when_and_where(tmp_path):
    report("acting", str(tmp_path), ROWS)
    (found,) = read_reports(str(tmp_path))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d on \d+ cores, .+, Python 3\.10\.\d+", found.measured
    )
